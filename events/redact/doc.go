// Package redact replaces what matches a set of patterns in a text, or in a stream of bytes that
// arrives in pieces. It does no I/O.
//
// # Patterns
// A pattern is a regular expression (RE2). It matches anywhere, so that `^`, `$`, `\b` and the like
// are rejected, as is a pattern that matches the empty text. Of several matches the leftmost counts,
// of those the longest. A match has at most [MaxMatch] bytes: the search continues with what follows it.
//
// # Streams
// The output of a [Stream] depends on its input alone, not on how the input was cut. A stream holds
// back only bytes that may be the beginning of a match, or of a longer one, and the bytes of an
// incomplete UTF-8 character. There is no timer: such bytes wait for the next input or the end. All
// other bytes are returned at once, so that a prompt is held back only by a pattern that may begin
// with the prompt's last characters.
package redact
