// Package webhook is the vocabulary of lifecycle events and of the webhooks that
// receive them. It does no I/O.
//
// # Lifecycle events
// A lifecycle event is a projection of one event of a sandbox's record, in the format of
// E2B's API. [Fold] derives them from a record. An event has the same id for every reader,
// however often it is read or delivered.
//
// # Events of processes
// An event of a process is a projection of the process's entry in the catalog: that it started, ended,
// or never ran. [OfProcess] derives them.
//
// # Order
// [Position] orders the lifecycle events of all sandboxes of a tenant, and those of
// one sandbox in the order of its record. It orders the events of processes in the same way, by the
// catalog. Between the two there is no order: [Positions] are a position in each.
package webhook
