// Package scheduler chooses the host of each sandbox.
//
// # Guarantees
// A requested sandbox is placed or refused exactly once, by the first scheduler that
// decides. However many schedulers run, a host never gets more sandboxes than the capacity
// in its lease. If a scheduler dies between choosing a host and recording the choice, the
// sandbox stays requested and another scheduler places it.
//
// If every host is full or still starting, a sandbox is queued until the time in its
// request (PlaceBy), and refused only then. The queue is ordered: a younger request of the
// same tenant is never placed on a host for which an older one waits, and tenants share the
// hosts evenly (placementOrder). Queuing is an event of the record.
//
// # Implementation
// Schedulers keep no state outside the log and elect no leader. A decision is one append
// that succeeds only if no sandbox's record has changed since the state it is based on. If
// two schedulers fill the last capacity of a host, one append fails; that scheduler decides
// again and finds the host full.
package scheduler
