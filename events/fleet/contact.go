package fleet

import (
	"cmp"
	"time"
)

// Contact distinguishes a silent host from a reader that received nothing: a lease expires
// only while the reader was connected without a break. Otherwise a NATS server that is down
// for longer than a lease would take every host with it. Contact belongs to one goroutine;
// its zero value has had no contact.
type Contact struct {
	// MaxGap is the longest time between two calls of Heard that does not count as a break;
	// 0 means a quarter of DefaultTTL.
	MaxGap time.Duration

	since, last time.Time
}

// UpToDate records that the reader is up to date with the log at now.
func (c *Contact) UpToDate(now time.Time) {
	gap := cmp.Or(c.MaxGap, DefaultTTL/4)
	if c.last.IsZero() || now.Sub(c.last) > gap {
		c.since = now
	}
	c.last = now
}

// Unbroken returns for how long the reader had been connected without a break when it was last up to
// date.
func (c *Contact) Unbroken() time.Duration { return c.last.Sub(c.since) }

// Silent reports whether h was known not to be alive at the last Heard: it left, or its
// whole time to live passed while the reader was connected. A host that is neither Alive
// nor Silent is in an unknown state.
func (c *Contact) Silent(h *Host) bool {
	if h.Gone {
		return true
	}
	from := h.Received
	if c.since.After(from) {
		from = c.since
	}
	return !c.last.IsZero() && c.last.Sub(from) >= h.TTL
}
