// Package prefetch fetches the templates of a host: ahead of their use, as long as there is space for
// them, and when a sandbox needs one.
//
// # Concurrency
// A [Fetcher] is safe for concurrent use. Its Run is one goroutine.
package prefetch
