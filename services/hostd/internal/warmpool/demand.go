package warmpool

import (
	"time"
)

const (
	leastMiB = 64               // memory of the instances that a spec has without a burst,
	leastMin = 2                // and their minimum
	burst    = 10 * time.Second // creates within that time count as one burst
	halving  = time.Minute      // time after which half as many instances are kept
)

// demand is how many instances of a spec sandboxes have used lately.
type demand struct {
	used  time.Time // the last create
	since time.Time // begin of the current burst
	count int       // creates in it
	peak  int       // creates in the largest burst lately,
	at    time.Time // which was then
}

// add counts a create.
func (d *demand) add(now time.Time) {
	if d.used = now; now.Sub(d.since) > burst {
		d.since, d.count = now, 0
	}
	if d.count++; d.count >= d.decayed(now) {
		d.peak, d.at = d.count, now
	}
}

// decayed returns the size of the largest burst, halved for each minute since then.
func (d *demand) decayed(now time.Time) int {
	n := d.peak
	for t := now.Sub(d.at); t >= halving && n > 0; t -= halving {
		n /= 2
	}
	return n
}

// instances returns how many instances to keep, if each takes mib of memory.
func (d *demand) instances(now time.Time, mib uint32) int {
	return max(d.decayed(now), leastMiB/int(max(mib, 1)), leastMin)
}
