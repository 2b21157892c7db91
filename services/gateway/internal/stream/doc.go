// Package stream sends a process's record to one client at a time. One loop
// serves every protocol, on connections that package httpconn takes over from the
// HTTP server.
//
// # Exactly once, in order
// [Copy] encodes each event that its [Source] yields exactly once, in order, and
// flushes once per batch. An event that the encoder cannot represent ends the
// stream with a protocol error; a stream never ends without a reason.
//
// # Slow readers
// A stream has no queue: it reads from its Source once the previous bytes are in
// the kernel. A client that reads nothing for the write timeout is disconnected
// and can resume from its cursor.
//
// # Cost
// An idle stream costs two goroutines, a small read buffer, the Source and the
// Encoder. All streams share a pool of write buffers and hold one only while they
// write. The partial lines that encoders keep are bounded for all streams
// together ([Budget]).
package stream
