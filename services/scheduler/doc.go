// Package scheduler says on which host a sandbox is made.
//
// # Promise
// A sandbox that was requested is placed or refused exactly once, by whichever
// scheduler comes first; however many run, a host never gets more sandboxes than
// its lease says it has room for. A scheduler that dies between choosing a host
// and writing it down leaves the sandbox requested, and the next one finds it.
//
// A sandbox for which every host is full, or is still starting, is queued until the
// time in its request (PlaceBy), and refused only then. A queue is in order: a younger
// request of the same tenant is never placed on a host for which an older one waits, and
// tenants share the hosts evenly (inOrder). The wait is an event of the record.
//
// # How
// Nothing is kept outside the log, and nobody is elected. A decision is one
// append that holds only if nothing was appended to any sandbox's record since
// the state it was made from. Of two schedulers that fill the last place one is
// refused; it looks again, at a host that is full.
package scheduler
