// Package agents starts the agents of sandboxes that are not conversations, and reports how they ended.
//
// # One start
// An agent is a process of its sandbox ([bootstrap.StartAgent]) that is started with an idempotency key.
// However often requests are repeated, and at however many gateways, a sandbox has at most one agent.
//
// # Status
// The status of an agent is that of its process in the view. Nothing else is stored.
//
// # Idle timeouts
// Every gateway holds the sandboxes whose agent has a task and runs, whichever gateway started it. An
// agent without a task waits, and does not keep its sandbox.
package agents
