// Package schedtick makes the scheduler of each CPU run more often.
//
// # Why
// A deprioritized sandbox (cpu.idle) runs on a CPU that has nothing else to run, and a
// process that wakes up there preempts it at once. But a process that has just used up its
// slice while the deprioritized one waited is no longer ahead of it in virtual time: Linux
// then runs the deprioritized one, although others wait, until the next wake-up or clock
// tick. The clock ticks every 4 ms on Debian's kernel and every 1 ms on others. A command
// that meets this takes 6 ms instead of 2. That happens to one in a hundred, and an idle
// CPU nearby does not help.
//
// # How
// A child process has a thread on each CPU that only wakes up every millisecond. Each
// wake-up takes the CPU from the deprioritized sandbox, which has then run far more than
// its share. It costs about 1 % of each CPU, so it runs only while a sandbox is
// deprioritized.
package schedtick

// Arg is the argument that selects Main.
const Arg = "tick"
