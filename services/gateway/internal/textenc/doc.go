// Package textenc writes events as text, for every surface whose bytes people
// and browsers read: NDJSON, Server-Sent Events and durable streams.
//
// # Exactness
// A JSON string made here decodes to the bytes it was made from if those are
// UTF-8; every byte that is not part of a valid rune becomes one U+FFFD. Text
// that is cut between two events is decoded as if it had not been cut.
//
// # Cost
// Everything appends to the caller's buffer. Output frames are written by hand;
// a fuzz test holds them to encoding/json.
package textenc
