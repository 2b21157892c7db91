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
	spareFile = 1 << 16 // of the files that it can have, or
	sparePart = 20      // that part of a small one
	spareHog  = 4       // who has less than that part of it is nobody's trouble
	spareNear = 2       // times that: who grows is watched
	spareLast = 1. / 16 // of it: where those are ended whose volumes grew
	spareLook = 100 * time.Millisecond
	sparePace = 10              // times as long as it looked it rests at least
	spareTell = 5 * time.Second // where there is nobody to be ended
	// spareAgain is after what time who could not be ended may be found again.
	spareAgain = 5 * time.Second

	oustTimeout = 5 * time.Second // within which the processes of a place are killed
)

var errNoDisk = errors.New("the sandbox had most of what its host's disk was short of, and was ended for that")

// disk is what a file system has.
type disk struct {
	free, total      uint64 // bytes; free for anybody but root
	freeFiles, files uint64 // that it may still have, and can have; 0 where that has no bound of its own
}

// spare is how many bytes of the disk are kept free.
func (d disk) spare() uint64 { return min(d.total/sparePart, spareDisk) }

// scarcity is what a disk is short of.
type scarcity struct {
	what        string
	free, spare uint64
	of          func(*driver.Stats) uint64 // what a sandbox has of it
}

// short tells of what the disk has less than part of what is to be kept free.
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

// evict keeps some of the host's disk free, on which the services may store what
// processes print: a sandbox could else fill it, as one may that has no limit, and then
// nobody's output could be stored and no sandbox be ended. Where the disk runs short it
// removes templates that no sandbox uses, which can be fetched again, and then ends the sandbox that has most of it, if that is more than is left: one without a limit
// before any with one. Of who fills it by a volume nothing comes free; that nobody else is
// ended for it, less is to be kept free after it, until there is more again.
func (h *host) evict(ctx context.Context) error {
	k := keeper{h: h, volumes: growth{h: h}}
	for wait := spareLook; rest(ctx, wait); {
		begun := time.Now()
		k.look(ctx, room(h.cfg.DataDir))
		wait = max(spareLook, sparePace*time.Since(begun))
	}
	return nil
}

// keeper is what evict knows from one look to the next.
type keeper struct {
	h       *host
	volumes growth
	part    float64 // of the spare that is kept
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

// makeRoom is evict before a life has its lease: where there is no room at all none can be
// stored, and without one nothing be ended. Who has a limit is not known yet. Which templates
// are used is, unless an older host made one of the sandboxes.
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
			continue // another system's
		}
		if inst, err := d.Attach(ctx, h.spec(cmp.Or(was.place, id), &sandbox.Requested{})); err == nil {
			boxes = append(boxes, &box{h: h, id: id, inst: inst})
		}
	}
	h.ousted = make(map[sandbox.ID]bool)
	defer h.wg.Wait() // what is attached to is not being removed
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

// holdNoted uses the templates that sandboxes stand on, and tells whether it is known of all
// of them which those are.
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
		known = known && places[e.Name()] // what a damaged journal had is not in this one
	}
	return held, known
}

// evictOne ends who has most of something that the disk is short of, or sees a volume that
// grew by that much; nil: there is nobody.
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
			log.Warn("the disk is nearly full: a sandbox is ended for it", "sandbox", b.id)
		}
		h.oust(ctx, hog.boxes)
		return hog
	}
	return nil
}

// oust ends boxes for the disk. What takes longer than it mostly does goes on: who is next to
// be ended does not wait for it. Whom it cannot end may be found again a little later.
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
			h.slog.Error("end a sandbox", "sandbox", b.id, "err", err)
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

// tellFull warns of a disk that is short where nobody is to be ended for it.
func (h *host) tellFull(short []scarcity) {
	for _, s := range short {
		h.slog.Warn("the disk is nearly full, and no sandbox has much of it", "of", s.what, "free", s.free)
	}
}

// roomFor refuses what would fill a disk that is short of room.
func (h *host) roomFor(what, id string) error {
	if h.short.Load() {
		return kind.New(kind.Unavailable, what, id, "the disk of the sandbox's host is full")
	}
	return nil
}

// holding is what a sandbox has of the disk, or by how much a volume grew.
type holding struct {
	boxes   []*box           // that end for it
	volume  sandbox.VolumeID // empty: a sandbox
	has     driver.Stats
	limited bool // to no more than it asked for
}

// holdings measures the boxes; whom it cannot measure it leaves out.
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

// hogOf is who has most, at least so much; nil if nobody has.
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
