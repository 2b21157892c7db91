// Package shim is the resident process of a sandbox. It spawns processes, owns their pipes
// and terminals, numbers their events (seq from 2 on: hostd wrote Accepted as 1), and keeps
// each event until hostd acknowledges it. It outlives hostd: a restart of hostd does not
// affect processes unless their output fills the spool. The shim then stops reading their
// pipes until the spool has space, which loses nothing.
//
// # Parts
// Each part has its own mutex, and the parts below know nothing of those above.
//
//	shim      passes the frames of hostd to the part that each is for
//	session   serves the connections of hostd
//	procs     starts processes, applies commands to them, records how they end
//	output    reads pipes, numbers events and keeps them until they are stored
//	children  forks, waits for, signals and kills children of this process
//	network   streams to ports of the sandbox, connections to the egress proxy
//	users     accounts of the sandbox
//	oom       processes that the kernel killed for lack of memory
//
// # Exit
// Exited is recorded as soon as the process was waited for and the output left in its pipes
// was read. Finished, the last event, follows when all pipes are closed. A grandchild may
// hold a pipe open forever, so Finished also follows after Limits.Grace of silence, or
// Limits.GraceMax after the exit, whichever comes first. Later output to the pipe is read
// and dropped, so that the writer neither blocks nor dies of SIGPIPE. A start with UntilEOF has
// no such limit: its record ends when no process has its pipes open. From a SIGKILL on it has the
// limits, because a process that left the group survives the signal. A terminal has the limits
// in any case: programs that a user leaves behind often keep it open.
//
// # Kill
// A signal goes to the process group, and on a terminal also to its foreground group. End
// kills every process of the sandbox, however it hides: the whole pid namespace, or else
// all descendants. If hostd takes too long to store their remaining output, Conclude ends
// each record after the last event that was sent. It adds the exit, and the number of bytes
// that were read and are missing.
//
// # Size
// The package is linked into a binary of its own, with one running in every sandbox: it
// imports no NATS and no protobuf reflection.
package shim
