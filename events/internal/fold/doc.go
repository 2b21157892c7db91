// Package fold keeps a view of streams in memory.
//
// A [Progress] follows the streams of its sources and applies each message under one lock.
// Its Sync waits for everything that was stored in some or all of them before the call. A
// [Table] holds the documents of one kind, which a [Document] describes: how they are stored,
// found, ordered and dropped. A [Swept] removes old records from a stream.
package fold
