package rate

import (
	"maps"
	"slices"
	"time"
)

// Bucket is what one gateway counted in a bucket.
type Bucket struct {
	Number int64
	ByKey  map[string]int
}

// Changed returns what this gateway counted in the buckets that have changed since the last call.
// If the result cannot be passed on, [Counts.Again] adds its buckets to the next one.
func (c *Counts) Changed() []Bucket {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Bucket
	for _, number := range slices.Sorted(maps.Keys(c.changed)) {
		out = append(out, Bucket{number, maps.Clone(c.own[number])})
	}
	clear(c.changed)
	return out
}

// Again marks a bucket as changed.
func (c *Counts) Again(number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own[number] != nil {
		c.changed[number] = true
	}
}

// Merge adds what another gateway has counted in a bucket, in place of what it had before.
func (c *Counts) Merge(run string, b Bucket, now time.Time) {
	newest := now.UnixNano() / int64(bucket)
	if b.Number > newest+1 || newest-b.Number >= buckets { // a clock is wrong, or it is forgotten already
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep(newest)
	if c.merged[run] == nil {
		c.merged[run] = make(map[int64]map[string]int)
	}
	had := c.merged[run][b.Number]
	c.merged[run][b.Number] = b.ByKey
	for key, n := range b.ByKey {
		k := c.of(key, b.Number)
		k.advance(b.Number)
		if more := n - had[key]; more > 0 && k.newest-b.Number < buckets {
			k.n[b.Number%buckets] += more
		}
	}
}

// forget removes the buckets that are not in the window of a newer one.
func forget(of map[int64]map[string]int, newest int64) {
	maps.DeleteFunc(of, func(number int64, _ map[string]int) bool { return newest-number >= buckets })
}
