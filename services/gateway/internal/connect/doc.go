// Package connect implements E2B's process.Process and filesystem.Filesystem
// services over the Connect protocol (HTTP/1.1; JSON and binary protobuf; identity
// and gzip), compatible with E2B's SDKs.
//
// # What a stream guarantees
// The first event is start. Each byte of output is in exactly one data event, in
// the order of its stream. An end event, if there is one, is the last event and is
// sent once. The last envelope is always the end of the stream. If the exit of a
// process was not observed, if the process timed out or never ran, or if its record
// has a gap, that envelope carries an error; there is no end event with code 0.
//
// # Resuming
// Each event carries seq, the number of the record's frame that holds its last
// byte. A client resumes with Connect and the header X-Replay-From (query
// replay_from). A seq is the first frame to send, so the last one received plus one;
// "live" means what comes next; empty means everything retained. When a partial line
// was held back, an event also carries cursor, "<seq>.<stdout>.<stderr>": the last
// frame sent completely and the number of bytes of each stream that were sent.
// X-Replay-From also accepts a cursor and resumes at the very next byte. Binary
// messages carry both as fields 1000 (seq) and 1001 (cursor), and the start event
// carries the process's id as field 1002 ("process" in JSON). The request header
// X-Process-Id selects a process by that id instead of by pid or tag: pids are
// reused, ids never.
//
// # Retries
// A Start, SendInput or CloseStdin with an Idempotency-Key header may be repeated,
// at any gateway, when its outcome is unknown: it takes effect once. A Start's key is
// remembered as long as its record, and the last 256 keys of a process's input as
// long as the process runs.
//
// # Lines
// Output of pipes without stdin is split at line ends: one line per event while at
// most 64 are available, several whole lines per event beyond that. A partial line is
// sent after 100 ms of silence, or once it is longer than 64 KiB. With
// line_flush=never (query, or header X-Line-Flush) it waits for its line end, up to
// 16 MiB, as long as the tenant's budget allows (stream.Budget). Output of terminals
// and of processes with stdin is passed on as it arrives.
package connect
