// Package children starts the processes of a sandbox, waits for all of them, and signals and
// kills them. It knows operating system processes only: what a process is to hostd, and what
// it prints, is the business of its owner.
//
// # Reused pids
// A signal reaches the child that it is for, or nothing: while a child is waited for, and its
// pid becomes free, no signal is sent, and none is sent to an empty process group afterwards.
package children
