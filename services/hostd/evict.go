package hostd

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

const (
	reserveBytes   = 1 << 30 // bytes of the host's disk that are kept free, or
	reserveFiles   = 1 << 16 // inodes that are kept free, or
	reserveDivisor = 20      // one 20th of a small disk, if that is less
	evictDivisor   = 4       // a sandbox that uses less than a quarter of the reserve is never evicted
	nearFactor     = 2       // times the reserve: below it, the growth of volumes is measured
	minReserve     = 1. / 16 // fraction of the reserve at which sandboxes are evicted whose volumes grew
	evictEvery     = 100 * time.Millisecond
	evictPause     = 10              // minimum pause after a check, as a multiple of its duration
	warnEvery      = 5 * time.Second // between warnings when no sandbox can be evicted
	// evictRetry is the time after which a sandbox that could not be ended may be chosen again.
	evictRetry = 5 * time.Second

	evictTimeout = 5 * time.Second // within which the processes of a sandbox are killed
)

var errNoDisk = errors.New("evicted: the host ran out of disk and this sandbox used the most")

// disk is the space of a file system.
type disk struct {
	free, total      uint64 // bytes; free for users other than root
	freeFiles, files uint64 // inodes; 0 where the file system has no fixed number
}

// reserve returns how many bytes of the disk are kept free.
func (d disk) reserve() uint64 { return min(d.total/reserveDivisor, reserveBytes) }

// shortage is a resource that a disk is short of.
type shortage struct {
	what          string
	free, reserve uint64
	usage         func(*driver.Stats) uint64 // usage of a sandbox
}

// shortages returns the resources of which less than part of the reserve is free.
func (d disk) shortages(part float64) (all []shortage) {
	for _, s := range [...]shortage{
		{"bytes", d.free, d.reserve(), func(s *driver.Stats) uint64 { return s.DiskBytes }},
		{"files", d.freeFiles, min(d.files/reserveDivisor, reserveFiles), func(s *driver.Stats) uint64 { return s.DiskFiles }},
	} {
		if float64(s.free) < part*float64(s.reserve) {
			all = append(all, s)
		}
	}
	return all
}

// evict keeps some of the host's disk free for the services to store output on. A sandbox without
// a disk limit could fill the disk: then no output could be stored and no sandbox ended. When the
// disk runs short, evict first removes templates that no sandbox uses, which can be fetched
// again. It then ends the sandbox that uses the most, if that is more than is left: one without a
// limit before any with one. Evicting a sandbox that fills the disk through a volume frees
// nothing. So that no other sandbox is evicted for it, the reserve is reduced after it until
// there is more space again.
func (h *host) evict(ctx context.Context) error {
	k := evictor{h: h, volumes: growth{h: h}}
	for wait := evictEvery; sleep(ctx, wait); {
		begun := time.Now()
		k.check(ctx, diskFree(h.cfg.DataDir))
		wait = max(evictEvery, evictPause*time.Since(begun))
	}
	return nil
}

// evictor is the state of evict between two checks.
type evictor struct {
	h        *host
	volumes  growth
	reserved float64 // fraction of the reserve that is kept free
	warned   time.Time
}

func (k *evictor) check(ctx context.Context, d disk) {
	near, short := len(d.shortages(nearFactor)) > 0, len(d.shortages(1)) > 0
	k.h.diskNear.Store(near)
	k.h.diskShort.Store(short)
	if !short {
		k.reserved = 1
	}
	if !near {
		k.volumes.last = nil
		return
	}
	sandboxes := k.h.measured()
	grew := k.volumes.check(ctx, sandboxes)
	scarce := d.shortages(k.reserved)
	if len(scarce) == 0 || k.h.templates.Shed() {
		return
	}
	top := k.h.evictOne(ctx, sandboxes, grew, scarce)
	switch {
	case top == nil && time.Since(k.warned) > warnEvery:
		k.h.warnFull(scarce)
		k.warned = time.Now()
	case top != nil && top.volume != "":
		for k.reserved > minReserve && len(d.shortages(k.reserved)) > 0 {
			k.reserved /= 2
		}
	}
}

// evictBeforeLease is evict before a run has its lease: on a full disk no lease can be stored,
// and without one no sandbox be ended. Limits are not known yet. Templates in use are, unless an
// older version of the host created one of the sandboxes.
func (h *host) evictBeforeLease(ctx context.Context) error {
	if len(diskFree(h.cfg.DataDir).shortages(1)) == 0 {
		return nil
	}
	stored, err := h.journal.sandboxes()
	if err != nil {
		return err
	}
	var sandboxes []*hostSandbox
	for id, was := range stored {
		d, err := h.driverFor(was.driver)
		if err != nil {
			continue // a driver of another system
		}
		if inst, err := d.Attach(ctx, h.spec(cmp.Or(was.instance, id), &sandbox.Requested{})); err == nil {
			sandboxes = append(sandboxes, &hostSandbox{h: h, id: id, inst: inst})
		}
	}
	h.evictedEarly = make(map[sandbox.ID]bool)
	defer h.wg.Wait() // an instance that is attached to is not removed at the same time
	held, known := h.holdNoted(stored)
	defer func() {
		for _, t := range held {
			t.Release()
		}
	}()
	for {
		shortages := diskFree(h.cfg.DataDir).shortages(1)
		if len(shortages) > 0 && known && h.templates.Shed() {
			continue
		}
		top := h.evictOne(ctx, sandboxes, nil, shortages)
		if top == nil {
			h.warnFull(shortages)
			return nil
		}
		for _, sb := range top.sandboxes {
			h.evictedEarly[sb.id] = true
		}
		sandboxes = slices.DeleteFunc(sandboxes, func(sb *hostSandbox) bool { return h.evictedEarly[sb.id] })
	}
}

// holdNoted takes references to the templates that sandboxes are based on, and reports whether
// those are known for all of them.
func (h *host) holdNoted(stored map[sandbox.ID]created) (held []*templates.Tree, known bool) {
	instances := make(map[string]bool)
	known = true
	for id, was := range stored {
		instances[string(cmp.Or(was.instance, id))] = true
		known = known && was.trees != nil
		for _, id := range was.trees {
			if t, ok := h.templates.Hold(id); ok {
				held = append(held, t)
			}
		}
	}
	there, err := os.ReadDir(h.root())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return held, false
	}
	for _, e := range there {
		known = known && instances[e.Name()] // a damaged journal may have had more
	}
	return held, known
}

// evictOne ends the sandbox that uses the most of a resource the disk is short of, or the users
// of the volume that grew the most. It returns nil if no sandbox qualifies.
func (h *host) evictOne(ctx context.Context, sandboxes []*hostSandbox, grew []diskUse, shortages []shortage) *diskUse {
	if len(shortages) == 0 {
		return nil
	}
	all := append(diskUses(ctx, sandboxes), grew...)
	for _, s := range shortages {
		top := topConsumer(all, max(s.free, s.reserve/evictDivisor), s.usage)
		if top == nil {
			continue
		}
		log := h.slog.With("of", s.what, "free", s.free, "has", s.usage(&top.usage))
		if top.volume != "" {
			log = h.slog.With("of", s.what, "free", s.free, "volume", top.volume, "grew", s.usage(&top.usage)/growthWeight)
		}
		for _, sb := range top.sandboxes {
			log.Warn("disk nearly full, evicting sandbox", "sandbox", sb.id)
		}
		h.destroyEvicted(ctx, top.sandboxes)
		return top
	}
	return nil
}

// destroyEvicted ends sandboxes for the disk. It does not wait longer than evictTimeout, so that
// a slow one does not delay the next eviction. A sandbox that cannot be ended may be chosen again
// a little later.
func (h *host) destroyEvicted(ctx context.Context, sandboxes []*hostSandbox) {
	ended := make(chan struct{}, len(sandboxes))
	for _, sb := range sandboxes {
		sb.evicted.Store(true)
		h.wg.Go(func() {
			err := sb.instance().Destroy(ctx)
			ended <- struct{}{}
			if err == nil || ctx.Err() != nil {
				return
			}
			h.slog.Error("destroy evicted sandbox failed", "sandbox", sb.id, "err", err)
			if sleep(ctx, evictRetry) {
				sb.evicted.Store(false)
			}
		})
	}
	late := time.After(evictTimeout)
	for range sandboxes {
		select {
		case <-ended:
		case <-late:
			return
		}
	}
}

// warnFull warns of a full disk without a sandbox to evict.
func (h *host) warnFull(shortages []shortage) {
	for _, s := range shortages {
		h.slog.Warn("disk nearly full and no sandbox to evict", "of", s.what, "free", s.free)
	}
}

// checkDisk refuses operations that would fill a disk that is short of space.
func (h *host) checkDisk(what, id string) error {
	if h.diskShort.Load() {
		return kind.New(kind.Unavailable, what, id, "the disk of the sandbox's host is full")
	}
	return nil
}

// diskUse is how much of the disk a sandbox uses, or by how much a volume grew.
type diskUse struct {
	sandboxes []*hostSandbox   // to be evicted for it
	volume    sandbox.VolumeID // empty: a sandbox
	usage     driver.Stats
	limited   bool // to what it requested
}

// diskUses measures the sandboxes and leaves out those that cannot be measured.
func diskUses(ctx context.Context, sandboxes []*hostSandbox) []diskUse {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	var mu sync.Mutex
	var all []diskUse
	var g errgroup.Group
	g.SetLimit(maxMeasures)
	for _, sb := range sandboxes {
		if sb.instance() == nil || sb.evicted.Load() {
			continue
		}
		g.Go(func() error {
			s, err := sb.instance().Stats(ctx)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, diskUse{sandboxes: []*hostSandbox{sb}, usage: s, limited: sb.req.DiskMiB > 0})
			}
			return nil
		})
	}
	g.Wait() //nolint:errcheck // none fails
	return all
}

// topConsumer returns the entry with the most, at least least; nil without one.
func topConsumer(all []diskUse, least uint64, of func(*driver.Stats) uint64) *diskUse {
	all = slices.DeleteFunc(slices.Clone(all), func(h diskUse) bool { return of(&h.usage) < least })
	if len(all) == 0 {
		return nil
	}
	top := slices.MaxFunc(all, func(a, b diskUse) int {
		if a.limited != b.limited {
			return cmp.Compare(unlimited(a), unlimited(b))
		}
		return cmp.Compare(of(&a.usage), of(&b.usage))
	})
	return &top
}

func unlimited(h diskUse) int {
	if h.limited {
		return 0
	}
	return 1
}
