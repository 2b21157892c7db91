// Package observe reports what happens on a connection to the log. It is independent of the library
// that exposes the figures.
package observe

import "time"

// Observer receives durations in seconds, as a histogram does.
type Observer interface{ Observe(seconds float64) }

// Counter counts.
type Counter interface{ Inc() }

// Observers receive what happens on a connection. A nil field observes nothing.
type Observers struct {
	Append Observer // time of an append until it is stored, with its retries
	Replay Observer // time of a read of stored output
	Lost   Counter  // ends of processes that were not observed
	Gap    Counter  // gaps in records, stored or found by a reader
	Fenced Counter  // appends that another writer's newer claim rejected
}

// Since reports the time since a moment to o, which may be nil.
func Since(o Observer, begin time.Time) {
	if o != nil {
		o.Observe(time.Since(begin).Seconds())
	}
}

// Count counts one at c, which may be nil.
func Count(c Counter) {
	if c != nil {
		c.Inc()
	}
}
