// Package store is the connection of the log to its NATS servers. It is the only package
// that uses the client of NATS: it publishes, reads and follows messages of the log's
// streams, creates the streams, and holds object stores.
//
// # Outages
// Each request has a timeout of its own, because a response that was in flight when a server
// crashed never arrives. Methods that retry say so; they retry until their context ends.
// [Conn] leaves a server that is silent or cut off from the others.
//
// # Conditions
// A message is stored under the condition that a certain message is the last one of its
// subject. The condition is stored with it, so that the messages of a subject form a chain,
// which [Conn.Chain] reads backwards. If a condition does not hold, the error is
// [ErrExpectation], or an error of kind.Conflict from methods that have read the reason.
//
// # Parts
//
//	session  the connection itself: attempts, reconnects, requests to leaders
//	Monitor  whether each stream can be written
//	Conn     reads and appends
//	combiner appends of several records with one acknowledgment
//	Feed     the messages of a subject or stream, in order, each once
//	Stream   removal of old messages
//	Bucket   one object store
//	maker    creates streams
package store
