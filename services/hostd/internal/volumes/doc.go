// Package volumes has the volumes of a host: it creates and removes their directories as the log
// says, finds them for sandboxes, and serves their files.
//
// # Concurrency
// A [Store] is safe for concurrent use. Its Run is one goroutine.
package volumes
