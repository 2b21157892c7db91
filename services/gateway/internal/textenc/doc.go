// Package textenc encodes events as text for the surfaces that people and browsers
// read: NDJSON, Server-Sent Events and durable streams.
//
// # Exactness
// A JSON string encoded here decodes to the original bytes if those are UTF-8; each
// byte that is not part of a valid rune becomes one U+FFFD. Text that is split between
// two events decodes as if it had not been split.
//
// # Cost
// Everything appends to the caller's buffer. Output frames are encoded by hand; a fuzz
// test compares them with encoding/json.
package textenc
