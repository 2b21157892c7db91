// Package bundles implements the operations on secret bundles.
//
// # Changes
// A change stores the values of a new generation and then makes it valid with one append, decided by
// package bundle: of concurrent creations at any gateways one succeeds, and a tenant never has
// more bundles than it may. A gateway that dies leaves the bundle as it was, or with all its new
// values. The removal of earlier values follows; if the gateway dies before, [Bundles.Run] of
// another one removes them.
//
// # Values
// A value is sealed before it is stored. Only [Bundles.Resolve] opens values, for the sandbox of a
// conversation. No error and no log contains one.
package bundles
