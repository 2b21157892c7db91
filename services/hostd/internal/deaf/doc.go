// Package deaf keeps a program from ending by signals that other processes send to it.
//
// os/signal does that for most signals. Two kinds get past it:
//   - SIGSEGV and its like that were queued by sigqueue, or by the kernel for somebody's
//     F_SETSIG: Go's runtime knows only by the codes of kill and tgkill that a signal was
//     sent, takes those for faults of its own, and ends the program, pid 1 or not.
//   - The signals 32 to 34, which C libraries keep for themselves: the runtime has no
//     handler for them, nor does os/signal get one. They end who is not pid 1.
//
// Faults stay faults. What the program starts finds the signals as ever: handlers, unlike
// what is ignored, are not inherited.
package deaf
