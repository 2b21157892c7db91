// Package mux carries many byte streams over one ordered channel of frames, for example a
// socket to a shim, or messages between services. It does no I/O.
//
// # Frames
// A frame is 8 bytes of head (length, type, zeroes), as in package wire of hostd, and a
// payload that begins with the stream's id. Open names the target, Window grants bytes to
// send, Data carries them, Close ends one direction, Reset ends a stream in both directions
// with a reason. The opening end waits for the first Window, which confirms that the other
// end accepted the stream.
//
// # Credit
// An end sends only what the other end has granted, so that an unread stream uses bounded
// memory and blocks no other. The other end is not trusted: data beyond the grant, or out
// of turn, is [ErrProtocol], and the caller must close the channel.
//
// With a [Config].Budget, all streams together hold at most that many bytes. Each has a small
// guaranteed window, so that all make progress, and a wider one while budget is free.
// Streams to one destination never use the budget of another. Data received on an aborted
// stream counts until it is read or discarded.
//
// # Ends
// A reader gets io.EOF only if the other end closed the stream in order. Otherwise (a
// Reset, a broken channel) it gets an error after the data received before, so that an
// aborted stream is never mistaken for a complete one.
package mux
