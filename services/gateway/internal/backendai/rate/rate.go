package rate

import (
	"sync"
	"time"
)

// Window is the period in which requests count.
const Window = 15 * time.Minute

const (
	bucket  = 15 * time.Second
	buckets = int64(Window/bucket) + 1 // the oldest one lies partly before the window
)

// Counts counts requests by key. Its methods may be called concurrently.
type Counts struct {
	mu    sync.Mutex
	byKey map[string]*count
	swept int64 // number of the bucket in which idle keys were removed last
}

// count is the requests of one key.
type count struct {
	newest int64 // number of the newest bucket
	total  int
	n      [buckets]int // by the number of the bucket modulo buckets
}

// New returns counts of nothing.
func New() *Counts { return &Counts{byKey: make(map[string]*count)} }

// Add counts a request at a time, unless limit requests are in the window already. It returns how
// many more are allowed, or -1 if this one is not.
func (c *Counts) Add(key string, now time.Time, limit int) int {
	number := now.UnixNano() / int64(bucket)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep(number)
	k := c.byKey[key]
	if k == nil {
		k = &count{newest: number}
		c.byKey[key] = k
	}
	k.advance(number)
	if k.total >= limit {
		return -1
	}
	k.n[k.newest%buckets]++
	k.total++
	return limit - k.total
}

// advance makes a bucket the newest. An older one than the newest is not: clocks may step back.
func (k *count) advance(number int64) {
	if number-k.newest >= buckets {
		*k = count{newest: number}
	}
	for k.newest < number {
		k.newest++
		k.total -= k.n[k.newest%buckets]
		k.n[k.newest%buckets] = 0
	}
}

// sweep removes the keys without a request in the window, once per window.
func (c *Counts) sweep(number int64) {
	if number-c.swept < buckets {
		return
	}
	c.swept = number
	for key, k := range c.byKey {
		if number-k.newest >= buckets {
			delete(c.byKey, key)
		}
	}
}
