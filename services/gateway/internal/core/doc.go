// Package core contains what the packages that implement the gateway's operations share: the
// log and its view, the principal, calls to hosts, and errors. These packages (package operations
// composes them) are independent of the client protocol. They depend on package events and
// not on HTTP; a surface decodes requests for them and encodes their results.
//
// # Authorization
// Every method on behalf of a client takes a Principal. What belongs to another tenant, or to
// a sandbox other than the token's, is NotFound, as if it did not exist.
//
// # Read-your-writes
// A miss is final only after the view has caught up with the log, so that a client
// can take one gateway's answer to any other gateway.
package core
