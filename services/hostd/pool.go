package hostd

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

// Where a driver takes long to make a place (driver.Caps.Slow), some are ready: a
// create takes one that was made of the same spec, and another one is made when
// nobody waits for the machine. None is made before the first sandbox of its kind,
// and none is kept of which nobody took one lately. The shim of one that waits
// rehearses: the first command in a place takes twice as long as the next.

const (
	warmKinds = 4 // specs of which places are kept
	warmFor   = 10 * time.Minute
	warmPause = 50 * time.Millisecond // without a create, before a place is made
)

// pool are the places that are ready. host.fill makes them.
type pool struct {
	size int           // of each kind; 0: there is none
	poke chan struct{} // has a value when there may be something to do

	mu    sync.Mutex
	kinds map[string]*warmKind
	left  []warmPlace // that nobody wants any more
	busy  int         // places that are being made for who waits
}

// warmKind are places that are alike.
type warmKind struct {
	driver driver.Driver
	spec   driver.Spec     // without ID and Dir
	tree   *templates.Tree // that they stand on; nil: the host's own files
	used   time.Time
	ready  []warmPlace
}

// warmPlace is a place that is no sandbox's yet. Its name is its own, and stays so.
type warmPlace struct {
	id     sandbox.ID
	driver driver.Driver
	inst   driver.Instance // nil: it could not be made, and what is left of it is to be removed
}

func newPool(size int) *pool {
	return &pool{size: size, poke: make(chan struct{}, 1), kinds: make(map[string]*warmKind)}
}

// look has fill look what there is to do.
func (p *pool) look() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// begin and end enclose the making of a place that somebody waits for.
func (p *pool) begin() { p.count(1) }
func (p *pool) end()   { p.count(-1) }

func (p *pool) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy += n; p.busy == 0 {
		p.look()
	}
}

// kindOf names the kind of a spec, if places of it are kept, and gives what they have in common.
func (h *host) kindOf(o *offer, s driver.Spec) (string, driver.Spec, bool) {
	if h.spare.size == 0 || !o.caps.Slow || s.From != "" || len(s.Volumes) > 0 { // what has begun holds those
		return "", s, false
	}
	s.ID, s.Dir = "", ""
	key, err := json.Marshal(s)
	return o.Name() + string(key), s, err == nil
}

// warm gives a place that is ready for the spec, if there is one, and has another one made.
func (h *host) warm(o *offer, s driver.Spec) (warmPlace, bool) {
	p := h.spare
	key, _, ok := h.kindOf(o, s)
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kinds[key]
	if !ok || k == nil {
		return warmPlace{}, false
	}
	k.used = time.Now()
	for len(k.ready) > 0 {
		place := k.ready[0]
		k.ready = k.ready[1:]
		select {
		case <-place.inst.Done():
			p.left = append(p.left, place)
			p.look()
		default:
			p.look()
			return place, true
		}
	}
	return warmPlace{}, false
}

// keepWarm has places made ready of a spec that somebody has asked for, whose driver is prepared.
func (h *host) keepWarm(o *offer, s driver.Spec) {
	p := h.spare
	key, s, ok := h.kindOf(o, s)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ok || p.kinds[key] != nil || len(p.kinds) >= warmKinds {
		return
	}
	k := &warmKind{driver: o.Driver, spec: s, used: time.Now()}
	if id, err := template.ParseID(s.Template); err == nil {
		k.tree, _ = h.templates.Hold(id)
	}
	p.kinds[key] = k
}

// next is what fill is to do: a place to be removed, or a kind that lacks one. wait
// is how long until there may be something, if there is neither.
func (p *pool) next(now time.Time) (old []warmPlace, lacks *warmKind, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, p.left = p.left, nil
	wait = warmFor
	for key, k := range p.kinds {
		idle := now.Sub(k.used)
		if idle >= warmFor {
			old = append(old, k.ready...)
			k.tree.Release()
			delete(p.kinds, key)
			continue
		}
		wait = min(wait, warmFor-idle)
		if len(k.ready) < p.size && p.busy == 0 {
			lacks = k
		}
	}
	return old, lacks, wait
}

// add keeps a place that was made.
func (p *pool) add(k *warmKind, place warmPlace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k.ready = append(k.ready, place)
}

// drop gives up a kind of which no place can be made, unless somebody has asked for one
// since it was used last.
func (p *pool) drop(k *warmKind, used time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.used.Equal(used) {
		k.used = time.Time{}
	}
}

// usedAt is when somebody asked for a place of the kind last.
func (p *pool) usedAt(k *warmKind) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return k.used
}

// fill keeps places ready until ctx ends, and then removes them. What a life that
// was cut off leaves of them, the next one removes.
func (h *host) fill(ctx context.Context) {
	defer h.empty()
	if h.spare.size == 0 {
		return
	}
	for {
		old, k, wait := h.spare.next(time.Now())
		h.discard(old)
		if k != nil && !rest(ctx, warmPause) {
			return
		}
		if k != nil && h.spare.idle() {
			h.stock(ctx, k)
			continue
		}
		select {
		case <-h.spare.poke:
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

func (p *pool) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy == 0
}

// stock makes a place. It is noted down before, as a sandbox's is. What cannot be made, as on
// a full disk, is not made, and no more.
func (h *host) stock(ctx context.Context, k *warmKind) {
	spec, used := k.spec, h.spare.usedAt(k)
	spec.ID = sandbox.NewID()
	spec.Dir = h.dirOf(spec.ID)
	spec.ShimArgs = append(slices.Clone(spec.ShimArgs), "-rehearse")
	var inst driver.Instance
	err := os.MkdirAll(spec.Dir, 0o700)
	if err == nil {
		err = h.journal.setSandbox(spec.ID, made{driver: k.driver.Name(), trees: treesOf(k.tree)})
	}
	if err == nil {
		err = prepare(ctx, k.driver, &spec)
	}
	if err == nil {
		inst, err = h.build(ctx, k.driver, spec)
	}
	if err == nil {
		h.spare.add(k, warmPlace{spec.ID, k.driver, inst})
		return
	}
	h.spare.drop(k, used)
	if !kind.Is(err, kind.Canceled) {
		h.slog.Warn("no place can be kept ready", "driver", k.driver.Name(), "err", err)
	}
	h.discard([]warmPlace{{spec.ID, k.driver, nil}})
}

// empty removes what is ready at a clean end.
func (h *host) empty() {
	p := h.spare
	p.mu.Lock()
	old := p.left
	for _, k := range p.kinds {
		old = append(old, k.ready...)
		k.ready = nil
	}
	p.mu.Unlock()
	h.discard(old)
}

// discard removes places. What cannot be removed is tried again the next time, and by
// the next life.
func (h *host) discard(old []warmPlace) {
	for _, place := range old {
		if h.life.Err() != nil {
			return
		}
		err := h.remove(h.life, place.driver, place.id, place.inst)
		if err == nil {
			err = h.journal.forgetSandbox(place.id)
		}
		if err != nil {
			h.slog.Error("a place cannot be removed", "place", place.id, "err", err)
			h.spare.leave(place)
		}
	}
}

// leave keeps in mind a place that is to be removed.
func (p *pool) leave(place warmPlace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = append(p.left, place)
}
