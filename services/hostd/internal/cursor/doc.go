// Package cursor tracks which of a host's commands need not be read again after a restart, and
// the memory that unfinished commands are charged with.
//
// A [Cursor] is safe for concurrent use.
package cursor
