// Package terminal is the protocol of Backend.AI's terminals: messages of clients, frames with
// output, and the history with which a client begins.
//
// # History
// A client that connects gets the screen again: the output since the last time that the screen was
// cleared, or its last part, without the sequences that terminals answer (package vtfilter). An
// answer would be input that no user typed.
package terminal
