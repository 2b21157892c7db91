// Package rig runs the real binary for end-to-end tests, as one process or as
// the split topology, and lets tests kill, stop and restart any part of it.
//
// # Cleanup
// At the end of a test, rig ends everything that it started, by pid, including sandboxes
// and shims. A process or a mount that remains fails the test, so that it does not affect
// the next one.
//
// # Words
// A Program is one process of the binary. A Nest is a group of programs that share a
// directory and end together. Up and Split are nests.
package rig
