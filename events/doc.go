// Package events is the log of what happened to sandboxes and processes. A [Log] opens the
// connection to NATS, which the internal package store holds, and consists of the parts that
// use it.
//
// # Order
// A record holds all events of one process or one sandbox, totally ordered by their Seq,
// which is dense from 1. Nothing is promised about the order of events of different
// records.
//
// # Delivery
// An append is stored once however often it is retried, and never out of order. A
// [record.Reader] yields each event once, in order, across reconnects, server restarts and
// leader changes. Events that cannot be read are reported as a [process.Gap] or as an error
// of kind.Gone, never skipped silently.
//
// # Reading your writes
// A [catalog.View] is folded from the log and lags behind it by microseconds. Its Sync waits
// until it has caught up with everything stored before the call.
//
// # Parts
// The methods of a [Log] are those of its parts, which share one connection. Each part is a
// package and depends only on parts above it:
//
//	internal/store  the connection: requests, appends and feeds, with retries through outages
//	record          records of processes: Writer, Reader, the live tail, search by seq or time
//	blob            object stores: parts of templates, copies of snapshots, files of builds
//	attachment      the sessions of clients
//	conversation    the conversations of clients with agents
//	directory       the accounts of users
//	bundlestore     the secret bundles of tenants
//	workspace       the files of workspaces
//	trail           the audit trail
//	command         commands to hosts, and their replies
//	tunnel          byte streams to hosts
//	internal/fold   how a view is folded: progress through the streams, tables of documents
//	catalog         documents, records of sandboxes and builds, and the View of all of them
package events
