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

// Where a driver takes long to create an instance (driver.Caps.Slow), a warm pool keeps some
// ready: a create takes one with the same spec, and another one is created when the machine is
// not busy with creates. None is created before the first sandbox with its spec, and none is kept
// if none was taken lately. The shim of a warm instance rehearses: the first command in an
// instance takes twice as long as the next.

const (
	warmKinds = 4 // specs of which instances are kept
	warmFor   = 10 * time.Minute
	warmPause = 50 * time.Millisecond // time without a create before an instance is created
)

// pool is the warm pool. host.fill fills it.
type pool struct {
	size int           // per spec; 0: no pool
	poke chan struct{} // has a value when there may be work for fill

	mu    sync.Mutex
	kinds map[string]*warmKind
	left  []warmPlace // to be removed
	busy  int         // instances being created for sandboxes
}

// warmSpec is a spec and the warm instances of it.
type warmKind struct {
	driver driver.Driver
	spec   driver.Spec     // without ID and Dir
	tree   *templates.Tree // that they are based on; nil: the host's own files
	used   time.Time
	ready  []warmPlace
}

// warmInstance is an instance without a sandbox. It keeps its own name when a sandbox gets it.
type warmPlace struct {
	id     sandbox.ID
	driver driver.Driver
	inst   driver.Instance // nil: the create failed, and its remains are to be removed
}

func newPool(size int) *pool {
	return &pool{size: size, poke: make(chan struct{}, 1), kinds: make(map[string]*warmKind)}
}

// wake has fill check for work.
func (p *pool) look() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// beginCreate and endCreate enclose the creation of an instance for a sandbox.
func (p *pool) begin() { p.count(1) }
func (p *pool) end()   { p.count(-1) }

func (p *pool) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy += n; p.busy == 0 {
		p.look()
	}
}

// warmKey returns the key of a spec in the pool and the part that its instances share; false if
// none are kept.
func (h *host) kindOf(o *offer, s driver.Spec) (string, driver.Spec, bool) {
	if h.spare.size == 0 || !o.caps.Slow || s.From != "" || len(s.Volumes) > 0 { // such an instance is its sandbox's own
		return "", s, false
	}
	s.ID, s.Dir = "", ""
	key, err := json.Marshal(s)
	return o.Name() + string(key), s, err == nil
}

// acquire takes a warm instance for the spec, if there is one, and has another one created.
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

// keepWarm adds the spec of a sandbox that is being created to the pool. Its driver is prepared.
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

// next returns the work of fill: instances to remove, and a spec that lacks an instance. wait is
// how long until there may be work, if there is nothing.
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

// add adds a new instance to the pool.
func (p *pool) add(k *warmKind, place warmPlace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k.ready = append(k.ready, place)
}

// expire removes a spec of which no instance can be created, unless a sandbox has requested one
// since.
func (p *pool) drop(k *warmKind, used time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.used.Equal(used) {
		k.used = time.Time{}
	}
}

// usedAt returns when an instance of the spec was last requested.
func (p *pool) usedAt(k *warmKind) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return k.used
}

// fill keeps the pool filled until ctx ends, and then drains it. Instances of a run that was
// killed are removed by the next run.
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

// createWarm creates an instance. The journal has it before, like a sandbox's. If that fails, as
// on a full disk, the spec expires.
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
		h.slog.Warn("create warm instance failed", "driver", k.driver.Name(), "err", err)
	}
	h.discard([]warmPlace{{spec.ID, k.driver, nil}})
}

// drain removes the warm instances on a clean exit.
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

// discard removes instances. One that cannot be removed is retried on the next call, and by the
// next run.
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
			h.slog.Error("remove instance failed", "instance", place.id, "err", err)
			h.spare.leave(place)
		}
	}
}

// discardLater queues an instance for removal.
func (p *pool) leave(place warmPlace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = append(p.left, place)
}
