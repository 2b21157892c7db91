// Package disk keeps a part of a host's disk free, on which the services store output: it removes
// unused templates, and then evicts the sandboxes that use the most.
//
// # Concurrency
// A [Guard] is safe for concurrent use. Its Run is one goroutine, which owns what was measured of
// volumes.
package disk
