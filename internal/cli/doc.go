// Package cli assembles the client commands: run, attach, ps, logs, kill, sandbox, cp,
// port-forward, events, doctor, bench and others. They use only the public HTTP API, over
// net/http, so any other client can do the same.
//
// # Packages
// processes, sandboxes, templates, admin and bench have the commands. They share command
// (flags, arguments, ids), client (requests and streams) and output (text and exit codes).
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
// # Streams survive broken connections
// Every stream resumes after the last event that it received, on the next gateway
// in MILLRACE_URL, and reports that on standard error.
package cli
