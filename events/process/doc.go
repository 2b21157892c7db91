// Package process is the vocabulary of a process's record: its events, their meaning for
// the process's state, and their stored format. It does no I/O.
//
// A record is a sequence of events with a dense Seq from 1. The first is [Accepted]; the
// last is always [Finished], whether written by the host that observed the end, or by the
// reaper if the host is gone. Output carries byte offsets, so that a reader can verify that
// it has every byte.
package process
