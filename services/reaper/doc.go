// Package reaper ends sandboxes whose time is over and cleans up after dead hosts.
//
// # Guarantees
// A sandbox that is not running by the time in its request (RunBy) ends. At its deadline,
// which counts from its start, it is stopped, or paused if that was requested and is
// possible, at most a few seconds late. At its hard end, which no request moves, it is stopped
// in any phase. A sandbox that has been paused for four weeks is stopped. Package due decides
// all of this. A host whose lease expired is declared gone, and all its processes and sandboxes
// end as lost; an exit that was not observed gets no exit code. An outage of NATS or of the
// reaper never makes a host count as gone: only time in which a lease renewal would have
// been observed counts.
//
// Parts of interrupted transfers are removed from the store of templates and snapshots
// hours later, and so is a fork's snapshot whose gateway was killed before it could delete
// it. Records of ended sandboxes are removed after thirty days, those of deleted snapshots
// after two.
//
// Unreachable records delay neither deadlines nor the detection of dead hosts: the records
// of dead hosts are ended concurrently.
//
// Lifecycle events are sent to the tenants' webhooks at least once, and those of one sandbox
// in order: see package deliver. So are the messages of conversations to the persistence backends
// of their tenants: see package persist.
//
// # Implementation
// Reapers keep no state outside the log: deadlines, leases and records come from a View, so
// a restart loses nothing. Any number of reapers may run. Each end is an append that expects
// the record as it was read, so that the first writer wins and the others find the end.
package reaper
