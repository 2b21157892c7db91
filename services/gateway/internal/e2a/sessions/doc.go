// Package sessions is the surface of e2a's conversations: their creation, their resume, and the
// WebSocket between a client and the runtime in the sandbox.
//
// # Messages
// Text of a client is passed to the runtime unparsed, and what the runtime sends is passed to the
// client. The gateway adds messages of the type "system" only: announcements, and positions for clients
// that asked for them.
//
// # Positions
// A client that connects with ?after= gets, after what it receives, the position behind it. With
// ?after=POSITION it receives what follows that position, so that a client that lost its connection
// misses nothing. A position of an earlier sandbox, and an empty one, stand for the beginning.
package sessions
