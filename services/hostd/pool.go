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
	maxWarmSpecs = 4 // specs of which instances are kept
	warmFor      = 10 * time.Minute
	warmPause    = 50 * time.Millisecond // time without a create before an instance is created
)

// pool is the warm pool. host.fill fills it.
type pool struct {
	size int           // per spec; 0: no pool
	poke chan struct{} // has a value when there may be work for fill

	mu       sync.Mutex
	specs    map[string]*warmSpec
	obsolete []warmInstance // to be removed
	creating int            // instances being created for sandboxes
}

// warmSpec is a spec and the warm instances of it.
type warmSpec struct {
	driver driver.Driver
	spec   driver.Spec     // without ID and Dir
	tree   *templates.Tree // that they are based on; nil: the host's own files
	used   time.Time
	ready  []warmInstance
}

// warmInstance is an instance without a sandbox. It keeps its own name when a sandbox gets it.
type warmInstance struct {
	id     sandbox.ID
	driver driver.Driver
	inst   driver.Instance // nil: the create failed, and its remains are to be removed
}

func newPool(size int) *pool {
	return &pool{size: size, poke: make(chan struct{}, 1), specs: make(map[string]*warmSpec)}
}

// wake has fill check for work.
func (p *pool) wake() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// beginCreate and endCreate enclose the creation of an instance for a sandbox.
func (p *pool) beginCreate() { p.count(1) }
func (p *pool) endCreate()   { p.count(-1) }

func (p *pool) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.creating += n; p.creating == 0 {
		p.wake()
	}
}

// warmKey returns the key of a spec in the pool and the part that its instances share; false if
// none are kept.
func (h *host) warmKey(o *offer, s driver.Spec) (string, driver.Spec, bool) {
	if h.warm.size == 0 || !o.caps.Slow || s.From != "" || len(s.Volumes) > 0 { // such an instance is its sandbox's own
		return "", s, false
	}
	s.ID, s.Dir = "", ""
	key, err := json.Marshal(s)
	return o.Name() + string(key), s, err == nil
}

// acquire takes a warm instance for the spec, if there is one, and has another one created.
func (h *host) acquire(o *offer, s driver.Spec) (warmInstance, bool) {
	p := h.warm
	key, _, ok := h.warmKey(o, s)
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.specs[key]
	if !ok || k == nil {
		return warmInstance{}, false
	}
	k.used = time.Now()
	for len(k.ready) > 0 {
		warm := k.ready[0]
		k.ready = k.ready[1:]
		select {
		case <-warm.inst.Done():
			p.obsolete = append(p.obsolete, warm)
			p.wake()
		default:
			p.wake()
			return warm, true
		}
	}
	return warmInstance{}, false
}

// keepWarm adds the spec of a sandbox that is being created to the pool. Its driver is prepared.
func (h *host) keepWarm(o *offer, s driver.Spec) {
	p := h.warm
	key, s, ok := h.warmKey(o, s)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ok || p.specs[key] != nil || len(p.specs) >= maxWarmSpecs {
		return
	}
	k := &warmSpec{driver: o.Driver, spec: s, used: time.Now()}
	if id, err := template.ParseID(s.Template); err == nil {
		k.tree, _ = h.templates.Hold(id)
	}
	p.specs[key] = k
}

// next returns the work of fill: instances to remove, and a spec that lacks an instance. wait is
// how long until there may be work, if there is nothing.
func (p *pool) next(now time.Time) (old []warmInstance, lacks *warmSpec, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, p.obsolete = p.obsolete, nil
	wait = warmFor
	for key, k := range p.specs {
		idle := now.Sub(k.used)
		if idle >= warmFor {
			old = append(old, k.ready...)
			k.tree.Release()
			delete(p.specs, key)
			continue
		}
		wait = min(wait, warmFor-idle)
		if len(k.ready) < p.size && p.creating == 0 {
			lacks = k
		}
	}
	return old, lacks, wait
}

// add adds a new instance to the pool.
func (p *pool) add(k *warmSpec, warm warmInstance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k.ready = append(k.ready, warm)
}

// expire removes a spec of which no instance can be created, unless a sandbox has requested one
// since.
func (p *pool) expire(k *warmSpec, used time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.used.Equal(used) {
		k.used = time.Time{}
	}
}

// usedAt returns when an instance of the spec was last requested.
func (p *pool) usedAt(k *warmSpec) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return k.used
}

// fill keeps the pool filled until ctx ends, and then drains it. Instances of a run that was
// killed are removed by the next run.
func (h *host) fill(ctx context.Context) {
	defer h.drainWarm()
	if h.warm.size == 0 {
		return
	}
	for {
		old, k, wait := h.warm.next(time.Now())
		h.discard(old)
		if k != nil && !sleep(ctx, warmPause) {
			return
		}
		if k != nil && h.warm.idle() {
			h.createWarm(ctx, k)
			continue
		}
		select {
		case <-h.warm.poke:
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

func (p *pool) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.creating == 0
}

// createWarm creates an instance. The journal has it before, like a sandbox's. If that fails, as
// on a full disk, the spec expires.
func (h *host) createWarm(ctx context.Context, k *warmSpec) {
	spec, used := k.spec, h.warm.usedAt(k)
	spec.ID = sandbox.NewID()
	spec.Dir = h.dirOf(spec.ID)
	spec.ShimArgs = append(slices.Clone(spec.ShimArgs), "-rehearse")
	var inst driver.Instance
	err := os.MkdirAll(spec.Dir, 0o700)
	if err == nil {
		err = h.journal.setSandbox(spec.ID, created{driver: k.driver.Name(), trees: treesOf(k.tree)})
	}
	if err == nil {
		err = prepare(ctx, k.driver, &spec)
	}
	if err == nil {
		inst, err = h.build(ctx, k.driver, spec)
	}
	if err == nil {
		h.warm.add(k, warmInstance{spec.ID, k.driver, inst})
		return
	}
	h.warm.expire(k, used)
	if !kind.Is(err, kind.Canceled) {
		h.slog.Warn("create warm instance failed", "driver", k.driver.Name(), "err", err)
	}
	h.discard([]warmInstance{{spec.ID, k.driver, nil}})
}

// drainWarm removes the warm instances on a clean exit.
func (h *host) drainWarm() {
	p := h.warm
	p.mu.Lock()
	old := p.obsolete
	for _, k := range p.specs {
		old = append(old, k.ready...)
		k.ready = nil
	}
	p.mu.Unlock()
	h.discard(old)
}

// discard removes instances. One that cannot be removed is retried on the next call, and by the
// next run.
func (h *host) discard(old []warmInstance) {
	for _, warm := range old {
		if h.runCtx.Err() != nil {
			return
		}
		err := h.remove(h.runCtx, warm.driver, warm.id, warm.inst)
		if err == nil {
			err = h.journal.forgetSandbox(warm.id)
		}
		if err != nil {
			h.slog.Error("remove instance failed", "instance", warm.id, "err", err)
			h.warm.discardLater(warm)
		}
	}
}

// discardLater queues an instance for removal.
func (p *pool) discardLater(warm warmInstance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.obsolete = append(p.obsolete, warm)
}
