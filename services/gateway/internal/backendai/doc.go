// Package backendai is the surface for Backend.AI's SDKs, CLI and web terminals, in the versions
// of its API from v4.20181215 to v8.
//
// # Requests
// [Handler.Guard] runs before the handlers: it checks the signature of a request (package
// signature), counts it (package rate) and encodes errors as problem details with Backend.AI's
// types, also those that no handler returns.
//
// # Sessions
// A session is a sandbox with a name (package session). At most one sandbox of a tenant with a
// name is alive, whichever gateways create it. Requests name a session by its name or its UUID.
//
// # Runs
// A run is a process (package run), found by its tag, so that any gateway continues it. Runs that
// reach one gateway are executed in their order: each starts when the one before has its place in
// the queue of the kernel. A client
// on a WebSocket connection that disconnects interrupts its run; a gateway that drains or dies does
// not.
//
// # Terminals
// A session has one terminal with any number of viewers (package terminal). Its shell is a process,
// whose record shows the screen again to a client that returns, at any gateway.
//
// # Services
// A service is a port of a session with a name. A WebSocket connection carries one TCP connection to
// it (package apps). A service that does not listen is started as a process, once, by any gateway.
package backendai
