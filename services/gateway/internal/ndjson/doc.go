// Package ndjson is the surface for curl and shells: POST /commands runs a
// command and streams what it prints, a JSON object a line.
//
// # The stream
// {"type":"start","pid":N,"process":"<id>"} first; then {"type":"stdout"} and
// {"type":"stderr"} with data, strictly one line of output each, its newline
// kept; the last line without one if it had none; a line longer than MaxLine in
// pieces. A command with a terminal or an open stdin is no matter of lines: what
// it prints is sent as it comes, a terminal's as {"type":"pty"}. Bytes that are
// not UTF-8 become U+FFFD. {"type":"end","exit_code":N} last:
//
//	{"type":"end","exit_code":3}                                    it exited
//	{"type":"end","exit_code":-1}                                   its timeout_ms passed
//	{"type":"end","exit_code":-1,"signal":9,"cause":"killed"}       a signal ended it
//	{"type":"end","exit_code":null,"signal":null,"cause":"host_lost"} nobody saw its end
//
// # Coming back
// The command does not end with the connection. Its lines are the same whenever
// they are read, so that a client that was cut off counts those it has:
// GET /commands/<process>/stream?skip=N, or the POST once more with the same
// Idempotency-Key and ?skip=N, gives the rest. Keepalives do not count. A stream
// that the gateway ends sends all it has, then a reconnect line: its after is the
// place to go on from at /v1/processes/<process>/events.
package ndjson
