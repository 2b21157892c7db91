// Package commands reads the commands for a host and replies to them.
//
// # Cursor
// A command is open from the time it is read until it need not be read again. The cursor is the
// position before which no command is open; it is stored about once per second, so that the next
// run reads few commands again in vain.
//
// # Concurrency
// A [Reader] is safe for concurrent use. Its Run and its StoreCursor are one goroutine each.
package commands
