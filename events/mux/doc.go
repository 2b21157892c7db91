// Package mux carries many byte streams over one ordered channel of frames,
// whoever moves the frames: a socket to a shim, or messages between services. It
// does no I/O.
//
// # Frames
// A frame is 8 bytes of head (length, type, zeroes), as package wire of hostd has
// them, and a payload that begins with the stream's id. Open names what is
// wanted, Window grants bytes to send, Data carries them, Close says that no more
// come, Reset ends a stream in both directions and says why. The end that opens
// waits for the first Window, which says that the other took the stream.
//
// # Credit
// Nothing is sent that the other end has not granted, so that a stream nobody
// reads holds a bounded amount of memory and stops no other. What the other end
// sends is hostile: more than was granted, or out of turn, is ErrProtocol, and
// whoever moves the frames must give the channel up.
//
// With a Config.Budget all streams together hold no more than that. Each has a small
// window for sure, so that all go on, and a wider one while there is room: those to one
// place never have that of another. What came on a stream that was cut counts until it
// is read, or given up.
//
// # Ends
// A reader sees io.EOF only where the other end closed in order. Everything else
// (a Reset, a channel that broke) is an error after the bytes that came before
// it: a stream that was cut is never taken for one that ended.
package mux
