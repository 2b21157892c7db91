// Package codexclient implements the part of codex's exec-server protocol that measuring
// requires, over WebSocket ([Dial]) and over the standard input and output of an exec-server
// ([Spawn]).
//
// Output is counted and not decoded: a client that decodes it would be what is measured.
package codexclient
