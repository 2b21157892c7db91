// Package frame separates messages on a stream of bytes, such as the standard streams of the
// runtime of a conversation and the record of what it prints.
//
// # Encoding
// A frame is one byte for its [Kind] and a payload. Both are encoded with COBS (Consistent
// Overhead Byte Stuffing), which removes all zero bytes at a cost of one byte in 254, and ended
// by one zero byte. A reader may therefore start anywhere: it discards everything up to the next
// zero byte ([Decoder.Resync]). Zero bytes between frames have no meaning.
//
// # Errors
// A malformed frame ([kind.Invalid]) and a payload beyond the limit ([kind.Exhausted]) do not end
// a stream: the decoder reports each and continues with the next frame. It never holds more than
// one frame of the largest size.
//
// # Control frames
// Frames of kind [Control] are messages between a gateway and a runtime ([Message]), which clients
// neither send nor receive.
package frame
