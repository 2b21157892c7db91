// Package events is the record: the only package that speaks JetStream.
//
// # Order
// The events of one process, and those of one sandbox, are totally ordered by
// their Seq, dense from 1. Nothing is promised about the order of events of
// different records.
//
// # Delivery
// An append is stored once however often it is retried, and never out of
// order. A Reader yields each event once, in order, across reconnects, server
// restarts and leader changes. What cannot be read is a process.Gap or an error
// of kind.Gone, never silence.
//
// # Reading your writes
// A View is folded from the log and lags behind it by microseconds. View.Sync
// waits until it has caught up with everything stored before the call.
package events
