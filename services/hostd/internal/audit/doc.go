// Package audit completes the records of ended processes whose end the log has lost, as a damaged
// disk of a server may lose it.
//
// # Concurrency
// An [Auditor] is safe for concurrent use. Its Run is one goroutine.
package audit
