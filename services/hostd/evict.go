package hostd

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

const (
	spareDisk = 1 << 30 // bytes of the host's disk that are kept free, or
	spareFile = 1 << 16 // of the files that it can have, or
	sparePart = 20      // that part of a small one
	spareHog  = 4       // who has less than that part of it is nobody's trouble
	spareLook = 100 * time.Millisecond
	spareWait = 5 * time.Second // where there is nobody to be ended
)

var errNoDisk = errors.New("the sandbox had most of what its host's disk was short of, and was ended for that")

// disk is what a file system has.
type disk struct {
	free, total      uint64 // bytes; free for anybody but root
	freeFiles, files uint64 // that it may still have, and can have; 0 where that has no bound of its own
}

// scarcity is what a disk is short of.
type scarcity struct {
	what        string
	free, spare uint64
	of          func(*driver.Stats) uint64 // what a sandbox has of it
}

// short tells what the disk is short of.
func (d disk) short() (all []scarcity) {
	for _, s := range [...]scarcity{
		{"bytes", d.free, min(d.total/sparePart, spareDisk), func(s *driver.Stats) uint64 { return s.DiskBytes }},
		{"files", d.freeFiles, min(d.files/sparePart, spareFile), func(s *driver.Stats) uint64 { return s.DiskFiles }},
	} {
		if s.free < s.spare {
			all = append(all, s)
		}
	}
	return all
}

// evict keeps some of the host's disk free, on which the services may store what
// processes print: a sandbox could else fill it, as one may that has no limit, and then
// nobody's output could be stored and no sandbox be ended. Where the disk runs short it
// ends the sandbox that has most of it, if that is more than is left: one without a limit
// before any with one.
func (h *host) evict(ctx context.Context) error {
	wait := spareLook
	for rest(ctx, wait) {
		wait = spareLook
		short := room(h.cfg.DataDir).short()
		h.short.Store(len(short) > 0)
		if len(short) > 0 && h.evictOne(ctx, h.measured(), short) == nil {
			wait = spareWait
		}
	}
	return nil
}

// makeRoom is evict before a life has its lease: where there is no room at all none can be
// stored, and without one nothing be ended. Who has a limit is not known yet.
func (h *host) makeRoom(ctx context.Context) error {
	if len(room(h.cfg.DataDir).short()) == 0 {
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
			continue // another system's
		}
		if inst, err := d.Attach(ctx, h.spec(cmp.Or(was.place, id), &sandbox.Requested{})); err == nil {
			boxes = append(boxes, &box{h: h, id: id, inst: inst})
		}
	}
	h.ousted = make(map[sandbox.ID]bool)
	for {
		short := room(h.cfg.DataDir).short()
		hog := h.evictOne(ctx, boxes, short)
		if hog == nil {
			return nil
		}
		h.ousted[hog.id] = true
	}
}

// evictOne ends who has most of something that the disk is short of; nil: there is nobody.
func (h *host) evictOne(ctx context.Context, boxes []*box, short []scarcity) *box {
	for _, s := range short {
		hog, size := hogOf(holdings(ctx, boxes, s.of), max(s.free, s.spare/spareHog))
		if hog == nil {
			h.slog.Warn("the disk is nearly full, and no sandbox has much of it", "of", s.what, "free", s.free)
			continue
		}
		h.slog.Warn("the disk is nearly full: the sandbox that has most of it is ended", "of", s.what, "free", s.free, "sandbox", hog.id, "has", size)
		hog.evicted.Store(true)
		if err := hog.inst.Destroy(ctx); err != nil && ctx.Err() == nil {
			h.slog.Error("end a sandbox", "sandbox", hog.id, "err", err)
			return nil
		}
		return hog
	}
	return nil
}

// roomFor refuses what would fill a disk that is short of room.
func (h *host) roomFor(what, id string) error {
	if h.short.Load() {
		return kind.New(kind.Unavailable, what, id, "the disk of the sandbox's host is full")
	}
	return nil
}

// holding is what a sandbox has of what the disk is short of.
type holding struct {
	box     *box
	size    uint64
	limited bool // to no more than it asked for
}

// holdings measures the boxes; whom it cannot measure it leaves out.
func holdings(ctx context.Context, boxes []*box, of func(*driver.Stats) uint64) []holding {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	var mu sync.Mutex
	var all []holding
	var g errgroup.Group
	g.SetLimit(measureAtOnce)
	for _, b := range boxes {
		if b.inst == nil || b.evicted.Load() {
			continue
		}
		g.Go(func() error {
			s, err := b.inst.Stats(ctx)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, holding{b, of(&s), b.req.DiskMiB > 0})
			}
			return nil
		})
	}
	g.Wait() //nolint:errcheck // none fails
	return all
}

// hogOf is who has most, at least so much; nil if nobody has.
func hogOf(all []holding, least uint64) (*box, uint64) {
	all = slices.DeleteFunc(all, func(h holding) bool { return h.size < least })
	if len(all) == 0 {
		return nil, 0
	}
	hog := slices.MaxFunc(all, func(a, b holding) int {
		if a.limited != b.limited {
			return cmp.Compare(unlimited(a), unlimited(b))
		}
		return cmp.Compare(a.size, b.size)
	})
	return hog.box, hog.size
}

func unlimited(h holding) int {
	if h.limited {
		return 0
	}
	return 1
}
