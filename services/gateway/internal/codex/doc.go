// Package codex serves the exec-server protocol of the codex CLI over WebSocket:
//
//	GET /codex/{sandbox}                   a session in a sandbox
//	GET /codex/new?template=&timeout=      a session in a sandbox of its own
//	GET /                                  a session in the sandbox whose token is sent
//
// The protocol is in the packages below: [session] serves a connection, and [backend] does
// what it asks for by the operations of the gateway. This package upgrades requests and opens
// sessions.
//
// # Sessions
// A client that lost its connection resumes its session with the same URL at any gateway. With
// ?on_disconnect=terminate the session ends when the connection does. Otherwise it ends
// ?detach_timeout= seconds later, 80 by default. Its processes are killed when it ends, and a
// sandbox of its own is ended.
package codex
