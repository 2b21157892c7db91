// Package reaper ends what is due.
//
// # Promise
// A sandbox that does not run by the time in its request (RunBy) ends. One whose deadline
// passed, which counts from when it ran, is told to stop, or to pause if that was asked
// for and can be, at most a few seconds late; one that is paused for four weeks
// is told to stop. A host whose lease ended is declared gone, and each process
// and sandbox it had ends as lost, with no exit code that nobody saw. A host is
// never declared gone for a silence of NATS or of the reaper itself: only silence
// that was listened to counts.
// What transfers that were cut off left in the store of templates and
// snapshots is removed hours later, and a fork's snapshot whose gateway was killed
// before it could. The records of sandboxes that ended go after thirty days, those of
// snapshots that were deleted after two.
//
// Records that cannot be reached keep no deadline waiting, nor who listens for hosts that
// fall silent: what dead hosts had is ended beside that.
//
// Lifecycle events are sent to the tenants' webhooks at least once, and those of one sandbox in
// order: see package deliver.
//
// # How
// Nothing is kept outside the log: deadlines, leases and records come from a
// View, so a restart forgets nothing. Any number of reapers may run. Each end is
// an append that expects the record as it was read, so that the first end wins
// whoever writes it; the others find it written.
package reaper
