// Package scheduler says on which host a sandbox is made.
//
// # Promise
// A sandbox that was requested is placed or refused exactly once, by whichever
// scheduler comes first; however many run, a host never gets more sandboxes than
// its lease says it has room for. A scheduler that dies between choosing a host
// and writing it down leaves the sandbox requested, and the next one finds it.
//
// # How
// Nothing is kept outside the log. A placement is one atomic append to two
// records: the sandbox's and its host's placements. Both must be where the
// choice was made from, so that of two schedulers that fill the last place one
// is refused and looks again.
package scheduler
