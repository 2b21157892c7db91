// Package jsonrpc parses and encodes the messages of codex's exec-server: JSON-RPC without
// the member jsonrpc, one message per WebSocket text frame or line.
//
// # What is accepted
// A message is one JSON object. The member jsonrpc is optional. An id is a string or a 64-bit
// integer and is echoed byte for byte; a null or fractional id is rejected. A batch is
// rejected. Unknown members are ignored; a repeated member is an error, because two parsers
// could disagree about its value.
//
// # Limits
// [Parse] checks the size, the nesting and the length of the id before it decodes anything, in
// one pass without recursion. Its result refers to the bytes of the message.
package jsonrpc
