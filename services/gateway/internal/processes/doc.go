// Package processes is the surface on which a process is its record:
// /v1/processes lists processes and tells one, feeds it, and streams its events,
// as NDJSON or as Server-Sent Events, whichever the client accepts.
//
// # One event, one line
// A stream gives every event of the record, none split and none joined, with
// its seq, which is dense from 1. Lines without a seq are not events: keepalive,
// reconnect, and an error that ends the stream.
//
// # Places
// after=N begins after event N, after=now at what comes next; a browser's
// Last-Event-ID is the same. A place that is not in the record is refused before
// the stream begins: 410 with the first event that is left, 400 out_of_range
// with the last.
package processes
