// Package durable implements the read side of the Durable Streams protocol for a process's
// record. Any client of that protocol can follow a process with catch-up reads,
// long-polls or Server-Sent Events.
//
// A record is a stream of JSON messages, the objects of /v1/processes/{id}/events. Its end
// closes the stream. Offsets are seqs, padded so that they sort as strings; "-1" is the
// beginning and "now" the end. Events past retention are 410. Only hosts write records:
// writing methods are 405.
//
// /v1/streams/{id}/{stdout|stderr|pty} is the same for the bytes of one stream of output.
// There, a number of bytes is also an offset, and a gap is 410.
package durable
