// Package webhook is the vocabulary of lifecycle events and of the webhooks that
// receive them. It does no I/O.
//
// # Lifecycle events
// A lifecycle event is a projection of one event of a sandbox's record, in the format of
// E2B's API. [Fold] derives them from a record. An event has the same id for every reader,
// however often it is read or delivered.
//
// # Order
// [Position] orders the lifecycle events of all sandboxes of a tenant, and those of
// one sandbox in the order of its record.
package webhook
