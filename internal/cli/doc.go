// Package cli is the client's half of the program: run, attach, ps, logs, kill,
// sandbox, events, doctor and bench. It speaks the public wire only, over
// net/http, so that whatever it does anybody can do.
//
// # What a script may rely on
// Standard output carries data and nothing else; what is said about it goes to
// standard error. `run` and `attach` exit as the remote command did: its code,
// 128 and the signal's number if a signal ended it, 125 if Millrace failed.
//
// # A broken connection is not an end
// Whatever streams comes back by itself from the last event it has, on the next
// of the gateways named in MILLRACE_URL, and says so on standard error.
package cli
