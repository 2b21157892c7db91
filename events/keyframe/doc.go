// Package keyframe stores key frames: what the screens of processes looked like at some events. They
// are a cache that gateways share, and nothing depends on them.
//
// # Bounds
// A record has at most [Slots] frames at multiples of [Every] bytes of output, and one more, the last.
// When the record outgrows them, every second frame is replaced, so that the distance between frames
// doubles: the slot of a frame follows from its position alone.
//
// # Content
// A frame is what an emulator of some version returned; frames of other versions are not returned. A
// frame is removed when the event to which it belongs is: it is stored with the rest of the event's
// life. It is not sealed, as output is not. The caller does not store frames of records whose policy
// keeps no output.
package keyframe
