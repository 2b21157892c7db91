package fleet

import "time"

// Contact tells a host that fell silent from a reader that heard nothing: a
// lease runs out only while the reader listened without a break. Without it,
// a NATS server that was away for longer than a lease would take every host
// with it. It belongs to one goroutine; its zero value has heard nothing.
type Contact struct {
	// MaxGap is the most time between two Heard that is no break; 0 means a
	// quarter of DefaultTTL.
	MaxGap time.Duration

	since, last time.Time
}

// Heard notes that the reader is up to date with the log at now.
func (c *Contact) Heard(now time.Time) {
	gap := c.MaxGap
	if gap == 0 {
		gap = DefaultTTL / 4
	}
	if c.last.IsZero() || now.Sub(c.last) > gap {
		c.since = now
	}
	c.last = now
}

// Silent reports whether h is known not to be alive at the last Heard: it left,
// or its whole time to live passed while the reader listened. A host that is
// neither Alive nor Silent is one of which nothing can be said yet.
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
