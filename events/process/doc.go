// Package process is the vocabulary of a process's record: its events, what
// they mean for its state, and their bytes at rest. It does no I/O.
//
// A record is a sequence of events with a dense Seq from 1. The first is
// Accepted; the last is Finished, always, whoever wrote it: the host that saw
// the end, or the reaper when nobody can see it any more. Output carries byte
// offsets, so that a reader can tell that it has every byte.
package process
