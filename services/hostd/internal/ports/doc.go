// Package ports connects gateways to the ports, the files and the egress proxies of sandboxes, and
// to volumes.
//
// # Concurrency
// A [Server] is safe for concurrent use. Its Run is one goroutine.
package ports
