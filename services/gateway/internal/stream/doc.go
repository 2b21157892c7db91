// Package stream carries a process's record to one client at a time: one loop
// for every protocol, over connections taken from the HTTP server.
//
// # Once, in order
// Copy encodes each event that its Source yields exactly once, in order, and
// flushes once a batch. What the encoder cannot say ends the stream in an
// error in the protocol's own words; a stream never just stops.
//
// # Nobody waits for a slow reader
// A stream holds no queue: it asks its Source when the bytes before are with
// the kernel. A reader that takes nothing for the write timeout is dropped; it
// comes back with its place.
//
// # Cost
// A held, silent stream is two goroutines, a small read buffer, the Source and
// the Encoder; write buffers are shared by all streams and held only while
// there is something to write. What encoders keep until a line ends is bounded for
// all of them together (Room).
//
// # Keep-alive
// A stream that ended in order gives its connection back to the HTTP server, if
// that has it from Listen; elsewhere the connection is closed.
package stream
