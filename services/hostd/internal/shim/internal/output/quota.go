package output

import "github.com/millrace/millrace/events/process"

// drops counts the output of a stream that was not recorded: because of the quota, or of a
// record that ended early.
type drops struct{ n, recorded uint64 }

// withinQuota returns how many of n bytes may be recorded and counts the rest as dropped.
func (r *Record) withinQuota(id process.Stream, n int) int {
	l := &r.b.limits
	keep := min(quotaLeft(l.Quota, r.recorded, n), quotaLeft(l.QuotaTotal, r.b.recorded, n))
	if keep == n {
		return n
	}
	r.drops(id).n += uint64(n - keep)
	if keep == 0 {
		r.recordDropped(false)
	}
	return keep
}

// drops returns the counter of a stream.
func (r *Record) drops(id process.Stream) *drops {
	if r.dropped == nil {
		r.dropped = make(map[process.Stream]*drops)
	}
	if r.dropped[id] == nil {
		r.dropped[id] = &drops{}
	}
	return r.dropped[id]
}

// quotaLeft returns how many of n bytes a quota allows after used bytes.
func quotaLeft(quota, used uint64, n int) int {
	if quota == 0 {
		return n
	}
	return int(min(uint64(n), quota-min(quota, used)))
}

// recordDropped records how much was dropped: at first, at each doubling, and at the end.
func (r *Record) recordDropped(last bool) {
	for _, id := range []process.Stream{process.Stdout, process.Stderr, process.PTY} {
		if d := r.dropped[id]; d != nil && (d.n >= 2*d.recorded && !last || last && d.n > d.recorded) {
			d.recorded = d.n
			r.record(process.Truncated{Stream: id, Dropped: d.n})
		}
	}
}
