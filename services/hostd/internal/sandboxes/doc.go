// Package sandboxes owns the sandboxes of a host, each from its placement until its teardown is
// complete: it creates or adopts them, pauses, resumes and reboots them, takes their snapshots, and
// measures them.
//
// # Desired state
// A sandbox's record is its desired state. The [Set] passes each change of it to the sandbox, whose
// goroutine brings the instance there and records the outcome.
//
// # Concurrency
// A [Set] is safe for concurrent use. Run, Measure and Recover are one goroutine each. Mutexes are
// taken in this order: that of a session, that of a sandbox, that of its network; none of them while
// that of the set is held.
package sandboxes
