// Package conversation records in the log which sandbox serves the conversation of a client with an
// agent. Clients call it a session.
//
// # State
// A conversation is one aggregate: its [State], and one table of what can happen to it. It is served
// by one sandbox at a time. A resume replaces that sandbox by one of the next generation. The gateway
// whose append of [Claimed] succeeds creates it.
//
// # Conditions
// The last message of a subject is valid, and replaces the one before by compare-and-append. Each
// message has a random mark, so that an append whose acknowledgment was lost is not mistaken for that
// of another writer with the same content.
//
// # Secrets
// The header for a persistence backend is sealed, and nothing else that is stored here is secret. The token of a client is signed from the [Token] in the state,
// by any gateway with the same result.
//
// # Retention
// A conversation is kept for [Keep] after the end of its last sandbox.
package conversation
