// Package instances creates the instances of a host's sandboxes, attaches to those that a previous
// run left, and removes those that no sandbox uses.
//
// # Concurrency
// A [Store], a [Shim] and a [Current] are safe for concurrent use, after Find has returned.
package instances
