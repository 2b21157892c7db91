// Package protocol is the vocabulary of codex's exec-server: its methods with their parameters
// and results, its notifications, and the order in which a connection may use them. It does no
// I/O.
//
// # Releases
// One set of answers serves the README of the protocol's first release and the released
// clients 0.117 to 0.169. A client ignores members that it does not know, so that every answer
// is a superset: a write answers both accepted and status, and initialize always returns a
// session. Parameters are those of all releases together; the optional ones are absent in old
// ones.
//
// # Errors
// Parameters are checked before the state of the connection, as released servers do. A name
// that no release had is an invalid request; a released method that is not offered is an
// unknown method ([Lookup]).
//
// # Requested isolation
// A policy that a client requests for a process becomes a [process.Confinement]. A policy with a part
// that is not known is an error: it must never be enforced in part.
package protocol
