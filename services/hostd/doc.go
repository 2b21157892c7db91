// Package hostd is the service of a node that runs sandboxes: it makes the
// sandboxes that the scheduler placed on it, starts processes in them, and puts
// what these do on record.
//
// # Life and death
// Each life of a host's daemon has an epoch, taken with its lease; a newer life
// fences the older. Hostd may be killed at any moment: the shims, one a sandbox,
// outlive it and keep what was not stored. The next life reads its journal,
// attaches to the shims it finds, asks the log where each record ends, and goes
// on from there: no byte is lost or doubled.
//
// # Commands
// A command is executed at most once. A start is claimed in the process's record
// before it is spawned; all others carry their place in the host's commands,
// and the shim drops what it has taken before. The journal's cursor moves past a
// command only when it need not be looked at again.
//
// # Order of writes
// The catalogue is written before the record shows the same fact, and the shim
// is told to forget an event after it was stored. Every record ends in exactly
// one Finished: the shim's, or, where the shim died, hostd's with the cause
// shim_lost and no exit code.
package hostd
