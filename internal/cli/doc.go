// Package cli implements the client commands: run, attach, ps, logs, kill, sandbox, cp,
// port-forward, events, doctor and bench. It uses only the public HTTP API, over
// net/http, so any other client can do the same.
//
// # What a script may rely on
// Standard output carries only data; messages go to standard error. `run` and `attach`
// exit as the remote command did: with its exit code, with 128 plus the signal's number
// if a signal ended it, or with 125 if Millrace failed. They exit with 0 after detaching:
// by Ctrl-P Ctrl-Q at a terminal, when the terminal closes, or on SIGHUP. run without a
// terminal forwards SIGHUP instead; under nohup it is ignored.
//
// With --output json, data is JSON with names in snake_case and times in RFC 3339 with
// milliseconds in UTC. The events of a record are written as the gateway sends them.
//
// # Ids
// A unique prefix stands for an id of a sandbox, process, snapshot, template or key. The
// lists are read only if the id as given does not exist. Hosts have names, not ids.
//
// # No input that the user did not type
// Recorded output that is shown at a terminal is filtered by package vtfilter: a
// terminal answers the queries in it, and the answers would become input of the
// process or of the user's shell. For attach, history is everything recorded before
// attach began; later output is live, also after a broken connection. Everything that
// logs shows is history.
//
// # Streams survive broken connections
// Every stream resumes after the last event that it received, on the next gateway
// in MILLRACE_URL, and reports that on standard error.
package cli
