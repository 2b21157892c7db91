// Package record has the records of processes. A record holds all events of one process, in
// order.
//
// The host of a process appends to its record with a [Writer], one message at a time, each
// expecting the one before it. Any number of a [Reader] read it: those close to its end share
// one live tail in memory, the others read from the store. [Records] finds events by seq or
// by time, and the ends of records.
//
// Events that the store has lost become a [process.Gap] (hole: seek.go and reader.go; lost
// end: bridge.go). Events that retention dropped are an error of kind.Gone.
package record
