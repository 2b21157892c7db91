// Package events is the log of what happened to sandboxes and processes. It is the only
// package that uses JetStream.
//
// # Order
// A record holds all events of one process or one sandbox, totally ordered by their Seq,
// which is dense from 1. Nothing is promised about the order of events of different
// records.
//
// # Delivery
// An append is stored once however often it is retried, and never out of order. A [Reader]
// yields each event once, in order, across reconnects, server restarts and leader changes.
// Events that cannot be read are reported as a [process.Gap] or as an error of kind.Gone,
// never skipped silently.
//
// # Reading your writes
// A [View] is folded from the log and lags behind it by microseconds. [View.Sync] waits
// until it has caught up with everything stored before the call.
package events
