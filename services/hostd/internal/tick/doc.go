// Package tick has each CPU look more often who is to run on it.
//
// # Why
// Who yields (cpu.idle) runs where nobody else wants to, and whoever wakes up on his CPU
// takes it at once. But who has run there for a slice while he waited is owed nothing any
// more, and he is: Linux lets him run then, though others wait, until somebody else wakes
// up or the clock ticks. It ticks each 4 ms on Debian's kernel, each 1 ms on others. A
// command that meets that takes 6 ms instead of 2, one in a hundred does, and an idle CPU
// beside it does not help.
//
// # How
// A child process has a thread on each CPU that does nothing but wake up each millisecond;
// with that whoever yields is off the CPU, and then has run far more than he is owed. It
// takes some 1 % of each CPU, so that it is there only while somebody yields.
package tick

// Arg is the argument by which Main is called for.
const Arg = "tick"
