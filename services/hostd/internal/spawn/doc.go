// Package spawn starts programs without waiting for them, so that one who holds a program
// up before it runs holds up nothing else.
//
// syscall.ForkExec's child borrows the parent's thread until it has executed its program,
// and with the thread what the runtime needs to collect garbage. By then the child is the
// user's that the program is to run as: whoever is that user may stop it, or hold a lease
// on the program, and the parent stands still as a whole.
//
// # How
// Start's child has a stack of its own, and runs none of Go's code: it goes through a table
// of system calls, the last of which is execve, in memory that is nobody else's. Start
// returns once there is a child; Child.Wait tells whether it became the program.
//
// On other systems than Linux, and other machines than amd64 and arm64, Start is
// syscall.ForkExec.
package spawn
