// Package shim is the resident process of a sandbox. It spawns processes, owns
// their pipes and terminals, gives their events their seq (from 2 on: hostd
// wrote Accepted as 1), and keeps each event until hostd acked it. It outlives
// hostd: processes never notice that hostd was away, unless their output fills
// the spool; then their pipes are not read until there is room again, which
// loses nothing.
//
// # Exit
// Exited is made as soon as the process was waited for and what it had left in
// its pipes was read. Finished, the last event, follows when all pipes are
// closed. A grandchild may hold a pipe for ever, so that Finished also follows
// after Limits.Grace of silence, or Limits.GraceMax after the exit, whichever
// comes first. What is written to the pipe after that is read and dropped, so
// that the writer neither blocks nor dies of it.
//
// # Kill
// A signal goes to the process group, and on a terminal also to the group in
// its foreground. End kills every process of the sandbox, however it hides: all
// of a pid namespace, else all descendants. Where what they have left to say takes
// hostd too long, Conclude ends their records after what it was sent: with how much
// output is missing, of what was read, and with their exits.
//
// # Size
// The package is linked into a binary of its own, with one running in every
// sandbox: it imports no NATS and no protobuf reflection.
package shim
