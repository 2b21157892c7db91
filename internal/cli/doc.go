// Package cli is the client's half of the program: run, attach, ps, logs, kill,
// sandbox, cp, port-forward, events, doctor and bench. It speaks the public wire only, over
// net/http, so that whatever it does anybody can do.
//
// # What a script may rely on
// Standard output carries data and nothing else; what is said about it goes to
// standard error. `run` and `attach` exit as the remote command did: its code,
// 128 and the signal's number if a signal ended it, 125 if Millrace failed. They
// exit with 0 after detaching: by Ctrl-P Ctrl-Q at a terminal, by a terminal that
// is gone, or by SIGHUP (of attach, and of run at a terminal; else SIGHUP is
// forwarded, and under nohup it is ignored).
//
// With --output json, data is JSON with names in snake_case and times in RFC 3339 with
// milliseconds in UTC. The events of a record are written as the gateway sends them.
//
// # Ids
// A unique prefix stands for an id of a sandbox, process, snapshot, template or key. The
// lists are read only if nothing has the id as it was given. Names of hosts are names,
// not ids.
//
// # Nothing is typed that the user did not type
// Recorded output that is shown at a terminal goes through package vtfilter: a
// terminal answers the queries in it, and the answers would be typed into the
// process, or into the user's shell. For attach, history ends where the record ended
// when it began; what comes later is live, also after a broken connection. All that
// logs shows is history.
//
// # A broken connection is not an end
// Whatever streams comes back by itself from the last event it has, on the next
// of the gateways named in MILLRACE_URL, and says so on standard error.
package cli
