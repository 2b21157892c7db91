// Package durable is the read side of the Durable Streams protocol on a
// process's record: any client of that protocol can follow a process, with
// catch-up reads, long-polls or Server-Sent Events.
//
// A record is a stream of JSON messages: the objects that /v1/processes/{id}/events
// gives. Its end closes the stream. Offsets are seqs, padded so that they sort as
// strings; "-1" is the beginning and "now" the end. What fell out of retention is
// 410. Hosts write records and nobody else: writing methods are 405.
//
// Below it, /v1/streams/{id}/{stdout|stderr|pty} is the same of the bytes of one
// stream of output; a number of bytes is an offset, too. A hole in them is 410.
package durable
