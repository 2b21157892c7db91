package disk

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

const (
	evictDivisor = 4       // a sandbox that uses less than a quarter of the reserve is never evicted
	minReserve   = 1. / 16 // fraction of the reserve at which sandboxes are evicted whose volumes grew
	evictEvery   = 100 * time.Millisecond
	evictPause   = 10              // minimum pause after a check, as a multiple of its duration
	warnEvery    = 5 * time.Second // between warnings when no sandbox can be evicted
	// evictRetry is the time after which a sandbox that could not be ended may be chosen again.
	evictRetry = 5 * time.Second

	evictTimeout = 5 * time.Second // within which the processes of a sandbox are killed

	measureTimeout = time.Second // per sandbox
	maxMeasures    = 8           // concurrent ones
)

// ErrEvicted is the cause of the end of a sandbox that was evicted.
var ErrEvicted = errors.New("evicted: the host ran out of disk and this sandbox used the most")

// evictor is the state of Run between two checks.
type evictor struct {
	g        *Guard
	volumes  growth
	reserved float64 // fraction of the reserve that is kept free
	warned   time.Time
}

func (k *evictor) check(ctx context.Context, d Space) {
	near, short := len(d.shortages(nearFactor)) > 0, len(d.shortages(1)) > 0
	k.g.near.Store(near)
	k.g.short.Store(short)
	if !short {
		k.reserved = 1
	}
	if !near {
		k.volumes.last = nil
		return
	}
	users := k.g.cfg.Users()
	grew := k.volumes.check(ctx, users)
	scarce := d.shortages(k.reserved)
	if len(scarce) == 0 || k.g.cfg.Shed() {
		return
	}
	top := k.g.evictOne(ctx, users, grew, scarce)
	switch {
	case top == nil && time.Since(k.warned) > warnEvery:
		k.g.warnFull(scarce)
		k.warned = time.Now()
	case top != nil && top.volume != "":
		for k.reserved > minReserve && len(d.shortages(k.reserved)) > 0 {
			k.reserved /= 2
		}
	}
}

// evictOne ends the sandbox that uses the most of a resource the disk is short of, or the users
// of the volume that grew the most. It returns nil if no sandbox qualifies.
func (g *Guard) evictOne(ctx context.Context, users []*User, grew []consumer, shortages []shortage) *consumer {
	if len(shortages) == 0 {
		return nil
	}
	all := append(consumers(ctx, users), grew...)
	for _, s := range shortages {
		top := topConsumer(all, max(s.free, s.reserve/evictDivisor), s.usage)
		if top == nil {
			continue
		}
		log := g.cfg.Log.With("of", s.what, "free", s.free, "has", s.usage(&top.used))
		if top.volume != "" {
			log = g.cfg.Log.With("of", s.what, "free", s.free, "volume", top.volume, "grew", s.usage(&top.used)/growthWeight)
		}
		for _, u := range top.users {
			log.Warn("disk nearly full, evicting sandbox", "sandbox", u.ID)
		}
		g.destroyEvicted(ctx, top.users)
		return top
	}
	return nil
}

// destroyEvicted ends sandboxes for the disk. It does not wait longer than evictTimeout, so that
// a slow one does not delay the next eviction. A sandbox that cannot be ended may be chosen again
// a little later.
func (g *Guard) destroyEvicted(ctx context.Context, users []*User) {
	ended := make(chan struct{}, len(users))
	for _, u := range users {
		u.Evicted.Store(true)
		if g.cfg.Evicted != nil {
			g.cfg.Evicted()
		}
		g.cfg.Go(func() {
			err := u.Instance().Destroy(ctx)
			ended <- struct{}{}
			if err == nil || ctx.Err() != nil {
				return
			}
			g.cfg.Log.Error("destroy evicted sandbox failed", "sandbox", u.ID, "err", err)
			if waiting.Sleep(ctx, evictRetry) {
				u.Evicted.Store(false)
			}
		})
	}
	late := time.After(evictTimeout)
	for range users {
		select {
		case <-ended:
		case <-late:
			return
		}
	}
}

// warnFull warns of a full disk without a sandbox to evict.
func (g *Guard) warnFull(shortages []shortage) {
	for _, s := range shortages {
		g.cfg.Log.Warn("disk nearly full and no sandbox to evict", "of", s.what, "free", s.free)
	}
}

// consumer is how much of the disk a sandbox uses, or by how much a volume grew.
type consumer struct {
	users   []*User          // to be evicted for it
	volume  sandbox.VolumeID // empty: a sandbox
	used    driver.Stats
	limited bool // to what it requested
}

// consumers measures the sandboxes and leaves out those that cannot be measured.
func consumers(ctx context.Context, users []*User) []consumer {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	var mu sync.Mutex
	var all []consumer
	var g errgroup.Group
	g.SetLimit(maxMeasures)
	for _, u := range users {
		if u.Instance() == nil || u.Evicted.Load() {
			continue
		}
		g.Go(func() error {
			s, err := u.Instance().Stats(ctx)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, consumer{users: []*User{u}, used: s, limited: u.Limited})
			}
			return nil
		})
	}
	g.Wait() //nolint:errcheck // none fails
	return all
}

// topConsumer returns the entry with the most, at least least; nil without one.
func topConsumer(all []consumer, least uint64, of func(*driver.Stats) uint64) *consumer {
	all = slices.DeleteFunc(slices.Clone(all), func(c consumer) bool { return of(&c.used) < least })
	if len(all) == 0 {
		return nil
	}
	top := slices.MaxFunc(all, func(a, b consumer) int {
		if a.limited != b.limited {
			return cmp.Compare(unlimited(a), unlimited(b))
		}
		return cmp.Compare(of(&a.used), of(&b.used))
	})
	return &top
}

func unlimited(c consumer) int {
	if c.limited {
		return 0
	}
	return 1
}
