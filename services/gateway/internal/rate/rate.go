package rate

import (
	"sync"
	"time"
)

// Window is the longest period in which requests count.
const Window = 15 * time.Minute

const (
	bucket  = 15 * time.Second
	buckets = int64(Window/bucket) + 1 // the oldest one lies partly before the window
)

// Counts counts requests by key. Its methods may be called concurrently.
type Counts struct {
	mu      sync.Mutex
	byKey   map[string]*count
	swept   int64                               // number of the bucket in which idle keys were removed last
	own     map[int64]map[string]int            // what was counted here, by bucket
	changed map[int64]bool                      // buckets of own since the last Changed
	merged  map[string]map[int64]map[string]int // what others counted
}

// count is the requests of one key.
type count struct {
	newest int64        // number of the newest bucket
	n      [buckets]int // by the number of the bucket modulo buckets
}

// New returns counts of nothing.
func New() *Counts {
	return &Counts{
		byKey: make(map[string]*count), own: make(map[int64]map[string]int), changed: make(map[int64]bool),
		merged: make(map[string]map[int64]map[string]int),
	}
}

// Limit is how many requests of a key are allowed in a period.
type Limit struct {
	Requests int
	Period   time.Duration // at most Window
}

// Add counts a request at a time, unless the limit is reached already. It returns how many more are
// allowed, or -1 and the time to wait if this one is not.
func (c *Counts) Add(key string, now time.Time, limit Limit) (left int, after time.Duration) {
	number := now.UnixNano() / int64(bucket)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep(number)
	k := c.of(key, number)
	k.advance(number)
	span := min(int64(limit.Period/bucket)+1, buckets)
	total := k.sum(span)
	if total >= limit.Requests {
		return -1, max(k.allowed(span, total-limit.Requests).Sub(now), time.Second)
	}
	k.n[k.newest%buckets]++
	if c.own[k.newest] == nil {
		c.own[k.newest] = make(map[string]int)
	}
	c.own[k.newest][key]++
	c.changed[k.newest] = true
	return limit.Requests - total - 1, 0
}

// sum returns the requests in the newest buckets.
func (k *count) sum(span int64) (total int) {
	for number := k.newest - span + 1; number <= k.newest; number++ {
		total += k.n[(number+buckets)%buckets]
	}
	return total
}

// allowed returns when a period has more than excess requests less than now.
func (k *count) allowed(span int64, excess int) time.Time {
	number := k.newest - span + 1
	for ; number < k.newest; number++ {
		if excess -= k.n[(number+buckets)%buckets]; excess < 0 {
			break
		}
	}
	return time.Unix(0, (number+span)*int64(bucket))
}

func (c *Counts) of(key string, number int64) *count {
	k := c.byKey[key]
	if k == nil {
		k = &count{newest: number}
		c.byKey[key] = k
	}
	return k
}

// advance makes a bucket the newest. An older one than the newest is not: clocks may step back.
func (k *count) advance(number int64) {
	if number-k.newest >= buckets {
		*k = count{newest: number}
	}
	for k.newest < number {
		k.newest++
		k.n[k.newest%buckets] = 0
	}
}

// sweep removes the keys without a request in the window, once per window, and old buckets.
func (c *Counts) sweep(number int64) {
	if number-c.swept < buckets {
		return
	}
	c.swept = number
	forget(c.own, number)
	for run, of := range c.merged {
		if forget(of, number); len(of) == 0 {
			delete(c.merged, run)
		}
	}
	for key, k := range c.byKey {
		if number-k.newest >= buckets {
			delete(c.byKey, key)
		}
	}
}
