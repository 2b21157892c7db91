// Package processes serves processes as records: /v1/processes lists and shows processes,
// sends them input, and streams their events, as NDJSON or as Server-Sent Events, whichever
// the client accepts.
//
// # Pages
// A list has at most 100 processes, newest first. The header X-Next-Token of a response is the
// nextToken of the next page, and is absent on the last one.
//
// # Events
// A stream contains every event of the record, none split and none joined, with its seq,
// which is dense from 1. Lines without a seq are not events: keepalive, reconnect, and an
// error that ends the stream.
//
// # Positions
// after=N starts after event N, after=now at the next event; a browser's Last-Event-ID has
// the same meaning. A position that is not in the record is rejected before the stream
// begins: 410 with the first event that is left, or 400 out_of_range with the last.
package processes
