// Package client sends requests to the gateways of one installation, over the public HTTP
// API and net/http alone, so that any other client can do the same.
//
// # Gateways
// A [Client] uses one gateway at a time. It moves on to the next one when a gateway is
// unreachable or fails.
//
// # Streams survive broken connections
// [Client.Follow] yields each event of a record once and in order. It resumes after the
// last event that it received, on the next gateway, and reports that.
//
// # Input
// A [Feeder] forwards input to a process. It sends bytes again only if the record shows
// that the process did not take them.
package client
