// Package cpushare deprioritizes sandboxes that use CPUs all the time without serving requests,
// so that a process of another sandbox that wakes up finds a CPU.
//
// # Concurrency
// [Run] is one goroutine. It owns the samples of each [Member]; only Member.Requests is written
// by others.
package cpushare
