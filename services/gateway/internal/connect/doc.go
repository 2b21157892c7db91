// Package connect speaks E2B's process.Process and filesystem.Filesystem over
// the Connect protocol (HTTP/1.1; JSON and binary protobuf; identity and gzip),
// as WIRE-E2B.md and its SDKs want it.
//
// # What a stream promises
// The first event is start. Each byte of output is in exactly one data event,
// in the order of its stream; end, if there is one, is the last event and comes
// once; the last envelope is the end of the stream, always. A process that
// nobody saw end, one that ran into its timeout, one that never ran and a hole
// in the record are errors in that last envelope, never an end with code 0.
//
// # Coming back
// Each event carries seq, the number of the frame of the record its last byte
// is from. A client goes on with Connect and the header X-Replay-From (query
// replay_from): a seq is the first frame to send, so last seen plus one; "live"
// is what comes next; nothing is everything retained. Where half a line was
// held back, an event also carries cursor, "<seq>.<stdout>.<stderr>": the last
// frame given whole and how many bytes of either stream were given; it takes
// the place of a seq in X-Replay-From and goes on at the very next byte. Binary
// messages carry both as fields 1000 (seq) and 1001 (cursor), and the start
// event the process's id as field 1002 ("process" in JSON). A request header
// X-Process-Id picks a process by that id instead of by pid or tag: pids are
// used again, ids never.
//
// # Trying again
// A Start, SendInput or CloseStdin with an Idempotency-Key header may be sent
// again, to any gateway, when it is unknown what became of it: it is done once.
// A Start's key is remembered as long as its record, the last 256 of a process's
// input as long as it runs.
//
// # Lines
// Output of pipes without stdin is cut at line ends: one line an event while at
// most 64 are at hand, several whole lines an event beyond. Half a line is sent
// after 100 ms of silence, or once it is longer than 64 KiB. With line_flush=never
// (query, or header X-Line-Flush) it waits for its end, up to 16 MiB, as long as
// the gateway has room for it (stream.Room). Output of terminals and of processes
// with stdin is passed on as it comes.
package connect
