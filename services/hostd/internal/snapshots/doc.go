// Package snapshots has the snapshots that a host made, and their copies in the object store of the
// log's servers: it makes copies, fetches those of other hosts, and removes what was deleted.
//
// # Concurrency
// A [Store] is safe for concurrent use. Its Run is one goroutine.
package snapshots
