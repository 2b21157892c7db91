// Package procs has the processes of a sandbox: it starts them once, applies hostd's commands
// to them once, and records how they begin and end.
//
// # Locks
// One mutex guards the table and its processes. It is taken before those of the other parts,
// and never while a pipe is read. A stream of package output calls its process while it is
// read itself, so no stream is called with the mutex held.
package procs
