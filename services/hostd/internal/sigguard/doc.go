// Package sigguard keeps a program from being killed by signals of other processes.
//
// os/signal does that for most signals. It does not cover two kinds:
//   - SIGSEGV and other fault signals that were queued by sigqueue, or by the kernel for
//     another process's F_SETSIG. Go's runtime recognizes a sent signal only by the codes
//     of kill and tgkill; it takes these for faults of its own and ends the program, pid 1
//     or not.
//   - The signals 32 to 34, which C libraries reserve: the runtime has no handler for them
//     and os/signal does not get them. They kill every process except pid 1.
//
// Real faults remain faults. Programs started by this one get the default handling:
// handlers, unlike ignored signals, are not inherited.
package sigguard
