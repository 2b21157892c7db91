// Package core implements the gateway's operations independently of the client
// protocol: it creates and ends sandboxes and starts, finds, reads, feeds and
// signals processes. It depends on package events and not on HTTP; a surface
// decodes requests for it and encodes its results.
//
// # Authorization
// Every method takes a Principal. What belongs to another tenant, or to a sandbox
// other than the token's, is NotFound, as if it did not exist.
//
// # Read-your-writes
// A miss is final only after the view has caught up with the log, so that a client
// can take one gateway's answer to any other gateway.
//
// # State
// A Core holds no state that another gateway lacks, except the starts that it sent
// and that no host has claimed yet; Run ends those whose host never claims them.
package core
