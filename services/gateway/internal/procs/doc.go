// Package procs implements the operations on processes: it starts, finds, reads, feeds and
// signals them.
//
// # State
// A Procs holds no state that another gateway lacks, except the starts that it sent and that
// no host has claimed yet; [Procs.Run] ends those whose host never claims them.
package procs
