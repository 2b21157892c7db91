// Package lease holds a host's claim to be alive, which also shows the host's load and what it can
// run. A run takes the lease with the next epoch, and thereby fences the run before it.
//
// # Concurrency
// A [Holder] is safe for concurrent use. A [Lease] belongs to one goroutine.
package lease
