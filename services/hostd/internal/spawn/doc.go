// Package spawn starts programs without waiting for them, so that a program whose execution
// is delayed delays nothing else.
//
// The child of syscall.ForkExec borrows the parent's thread until it has executed its
// program, and with the thread what the runtime needs to collect garbage. At that point the
// child already runs as the program's user: other processes of that user can stop it, or
// hold a lease on the program, which stops the whole parent.
//
// # How
// Start's child has a stack of its own and runs no Go code: it makes a table of system
// calls, the last of which is execve, in memory that is used for nothing else. Start
// returns once the child exists; Child.Wait reports whether it executed the program.
//
// On other systems than Linux, and other machines than amd64 and arm64, Start is
// syscall.ForkExec.
package spawn
