// Package rig runs the real binary for end-to-end tests, as one process or as
// the split topology, and lets tests kill, stop and restart any part of it.
//
// # What is left
// Whatever a rig started is ended when its test ends, by pid, sandboxes and
// shims included; a process or a mount that is still there afterwards is the
// test's failure, not the next test's problem.
//
// # Words
// A Program is one process of the binary. A Nest is the programs that share a
// directory and a fate. Up and Split are nests.
package rig
