// Package ports connects gateways to the ports and the files of sandboxes, and to volumes.
//
// # Concurrency
// A [Server] is safe for concurrent use. Its Run is one goroutine.
package ports
