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
	spareDisk = 1 << 30 // bytes of the host's disk that are kept free, or
	spareFile = 1 << 16 // inodes that are kept free, or
	sparePart = 20      // this fraction of a small disk, if that is less
	spareHog  = 4       // a sandbox with less than this fraction of the reserve is never evicted
	spareNear = 2       // times the reserve: below it, the growth of volumes is measured
	spareLast = 1. / 16 // fraction of the reserve at which sandboxes are evicted whose volumes grew
	spareLook = 100 * time.Millisecond
	sparePace = 10              // minimum pause after a check, as a multiple of its duration
	spareTell = 5 * time.Second // between warnings when no sandbox can be evicted
	// spareAgain is the time after which a sandbox that could not be ended may be chosen again.
	spareAgain = 5 * time.Second

	oustTimeout = 5 * time.Second // within which the processes of a sandbox are killed
)

var errNoDisk = errors.New("evicted: the host ran out of disk and this sandbox used the most")

// disk is the space of a file system.
type disk struct {
	free, total      uint64 // bytes; free for users other than root
	freeFiles, files uint64 // inodes; 0 where the file system has no fixed number
}

// spare returns how many bytes of the disk are kept free.
func (d disk) spare() uint64 { return min(d.total/sparePart, spareDisk) }

// shortage is a resource that a disk is short of.
type scarcity struct {
	what        string
	free, spare uint64
	of          func(*driver.Stats) uint64 // usage of a sandbox
}

// shortages returns the resources of which less than part of the reserve is free.
func (d disk) short(part float64) (all []scarcity) {
	for _, s := range [...]scarcity{
		{"bytes", d.free, d.spare(), func(s *driver.Stats) uint64 { return s.DiskBytes }},
		{"files", d.freeFiles, min(d.files/sparePart, spareFile), func(s *driver.Stats) uint64 { return s.DiskFiles }},
	} {
		if float64(s.free) < part*float64(s.spare) {
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
	k := keeper{h: h, volumes: growth{h: h}}
	for wait := spareLook; rest(ctx, wait); {
		begun := time.Now()
		k.look(ctx, room(h.cfg.DataDir))
		wait = max(spareLook, sparePace*time.Since(begun))
	}
	return nil
}

// evictor is the state of evict between two checks.
type keeper struct {
	h       *host
	volumes growth
	part    float64 // fraction of the reserve that is kept free
	told    time.Time
}

func (k *keeper) look(ctx context.Context, d disk) {
	near, short := len(d.short(spareNear)) > 0, len(d.short(1)) > 0
	k.h.near.Store(near)
	k.h.short.Store(short)
	if !short {
		k.part = 1
	}
	if !near {
		k.volumes.of = nil
		return
	}
	boxes := k.h.measured()
	grew := k.volumes.look(ctx, boxes)
	scarce := d.short(k.part)
	if len(scarce) == 0 || k.h.templates.Shed() {
		return
	}
	hog := k.h.evictOne(ctx, boxes, grew, scarce)
	switch {
	case hog == nil && time.Since(k.told) > spareTell:
		k.h.tellFull(scarce)
		k.told = time.Now()
	case hog != nil && hog.volume != "":
		for k.part > spareLast && len(d.short(k.part)) > 0 {
			k.part /= 2
		}
	}
}

// evictBeforeLease is evict before a run has its lease: on a full disk no lease can be stored,
// and without one no sandbox be ended. Limits are not known yet. Templates in use are, unless an
// older version of the host created one of the sandboxes.
func (h *host) makeRoom(ctx context.Context) error {
	if len(room(h.cfg.DataDir).short(1)) == 0 {
		return nil
	}
	noted, err := h.journal.sandboxes()
	if err != nil {
		return err
	}
	var boxes []*box
	for id, was := range noted {
		d, err := h.driverFor(was.driver)
		if err != nil {
			continue // a driver of another system
		}
		if inst, err := d.Attach(ctx, h.spec(cmp.Or(was.place, id), &sandbox.Requested{})); err == nil {
			boxes = append(boxes, &box{h: h, id: id, inst: inst})
		}
	}
	h.ousted = make(map[sandbox.ID]bool)
	defer h.wg.Wait() // an instance that is attached to is not removed at the same time
	held, known := h.holdNoted(noted)
	defer func() {
		for _, t := range held {
			t.Release()
		}
	}()
	for {
		short := room(h.cfg.DataDir).short(1)
		if len(short) > 0 && known && h.templates.Shed() {
			continue
		}
		hog := h.evictOne(ctx, boxes, nil, short)
		if hog == nil {
			h.tellFull(short)
			return nil
		}
		for _, b := range hog.boxes {
			h.ousted[b.id] = true
		}
		boxes = slices.DeleteFunc(boxes, func(b *box) bool { return h.ousted[b.id] })
	}
}

// holdNoted takes references to the templates that sandboxes are based on, and reports whether
// those are known for all of them.
func (h *host) holdNoted(noted map[sandbox.ID]made) (held []*templates.Tree, known bool) {
	places := make(map[string]bool)
	known = true
	for id, was := range noted {
		places[string(cmp.Or(was.place, id))] = true
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
		known = known && places[e.Name()] // a damaged journal may have had more
	}
	return held, known
}

// evictOne ends the sandbox that uses the most of a resource the disk is short of, or the users
// of the volume that grew the most. It returns nil if no sandbox qualifies.
func (h *host) evictOne(ctx context.Context, boxes []*box, grew []holding, short []scarcity) *holding {
	if len(short) == 0 {
		return nil
	}
	all := append(holdings(ctx, boxes), grew...)
	for _, s := range short {
		hog := hogOf(all, max(s.free, s.spare/spareHog), s.of)
		if hog == nil {
			continue
		}
		log := h.slog.With("of", s.what, "free", s.free, "has", s.of(&hog.has))
		if hog.volume != "" {
			log = h.slog.With("of", s.what, "free", s.free, "volume", hog.volume, "grew", s.of(&hog.has)/growthCounts)
		}
		for _, b := range hog.boxes {
			log.Warn("disk nearly full, evicting sandbox", "sandbox", b.id)
		}
		h.oust(ctx, hog.boxes)
		return hog
	}
	return nil
}

// destroyEvicted ends sandboxes for the disk. It does not wait longer than evictTimeout, so that
// a slow one does not delay the next eviction. A sandbox that cannot be ended may be chosen again
// a little later.
func (h *host) oust(ctx context.Context, boxes []*box) {
	ended := make(chan struct{}, len(boxes))
	for _, b := range boxes {
		b.evicted.Store(true)
		h.wg.Go(func() {
			err := b.instance().Destroy(ctx)
			ended <- struct{}{}
			if err == nil || ctx.Err() != nil {
				return
			}
			h.slog.Error("destroy evicted sandbox failed", "sandbox", b.id, "err", err)
			if rest(ctx, spareAgain) {
				b.evicted.Store(false)
			}
		})
	}
	late := time.After(oustTimeout)
	for range boxes {
		select {
		case <-ended:
		case <-late:
			return
		}
	}
}

// warnFull warns of a full disk without a sandbox to evict.
func (h *host) tellFull(short []scarcity) {
	for _, s := range short {
		h.slog.Warn("disk nearly full and no sandbox to evict", "of", s.what, "free", s.free)
	}
}

// checkDisk refuses operations that would fill a disk that is short of space.
func (h *host) roomFor(what, id string) error {
	if h.short.Load() {
		return kind.New(kind.Unavailable, what, id, "the disk of the sandbox's host is full")
	}
	return nil
}

// diskUse is how much of the disk a sandbox uses, or by how much a volume grew.
type holding struct {
	boxes   []*box           // to be evicted for it
	volume  sandbox.VolumeID // empty: a sandbox
	has     driver.Stats
	limited bool // to what it requested
}

// diskUses measures the sandboxes and leaves out those that cannot be measured.
func holdings(ctx context.Context, boxes []*box) []holding {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	var mu sync.Mutex
	var all []holding
	var g errgroup.Group
	g.SetLimit(measureAtOnce)
	for _, b := range boxes {
		if b.instance() == nil || b.evicted.Load() {
			continue
		}
		g.Go(func() error {
			s, err := b.instance().Stats(ctx)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, holding{boxes: []*box{b}, has: s, limited: b.req.DiskMiB > 0})
			}
			return nil
		})
	}
	g.Wait() //nolint:errcheck // none fails
	return all
}

// topConsumer returns the entry with the most, at least least; nil without one.
func hogOf(all []holding, least uint64, of func(*driver.Stats) uint64) *holding {
	all = slices.DeleteFunc(slices.Clone(all), func(h holding) bool { return of(&h.has) < least })
	if len(all) == 0 {
		return nil
	}
	hog := slices.MaxFunc(all, func(a, b holding) int {
		if a.limited != b.limited {
			return cmp.Compare(unlimited(a), unlimited(b))
		}
		return cmp.Compare(of(&a.has), of(&b.has))
	})
	return &hog
}

func unlimited(h holding) int {
	if h.limited {
		return 0
	}
	return 1
}
