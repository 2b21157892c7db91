// Package ndjson is the surface for curl and shells: POST /commands runs a command and
// streams its output, one JSON object per line.
//
// # The stream
// The stream begins with {"type":"start","pid":N,"process":"<id>"}. Each
// {"type":"stdout"} or {"type":"stderr"} has exactly one line of output as data,
// including its newline if it has one; a line longer than MaxLine is split. Output of a
// command with a terminal or an open stdin is not split at line ends but sent as it
// arrives, a terminal's as {"type":"pty"}. Bytes that are not UTF-8 become U+FFFD. The
// stream ends with {"type":"end","exit_code":N}:
//
//	{"type":"end","exit_code":3}                                    exited
//	{"type":"end","exit_code":-1}                                   timeout_ms passed
//	{"type":"end","exit_code":-1,"signal":9,"cause":"killed"}       ended by a signal
//	{"type":"end","exit_code":null,"signal":null,"cause":"host_lost"} exit not observed
//
// # Resuming
// A command continues when its connection ends. Its lines are the same on every read, so
// a disconnected client counts the lines that it has received. It gets the rest with
// GET /commands/<process>/stream?skip=N, or by repeating the POST with the same
// Idempotency-Key and ?skip=N. Keepalives do not count. A stream that the gateway ends
// sends all it has, then a reconnect line: its after is the position from which to
// continue at /v1/processes/<process>/events.
package ndjson
