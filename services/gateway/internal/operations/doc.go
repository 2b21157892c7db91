// Package operations composes the parts that implement the gateway's operations, which the
// surfaces serve.
package operations
