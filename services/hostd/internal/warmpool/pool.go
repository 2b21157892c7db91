package warmpool

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

const (
	maxWarmSpecs = 4 // specs of which instances are kept
	warmFor      = 10 * time.Minute
	warmPause    = 50 * time.Millisecond // time without a create before an instance is created
)

// Config configures a Pool. All fields are required.
type Config struct {
	Size    int                                                                        // instances per spec; 0: no pool
	Dir     func(sandbox.ID) string                                                    // returns the directory of an instance
	Hold    func(template.ID) *templates.Tree                                          // takes a reference to a template that is here; nil without it
	Record  func(id sandbox.ID, driver string, tree *templates.Tree) error             // stores that an instance is being created
	Forget  func(sandbox.ID) error                                                     // ends what Record stored
	Prepare func(context.Context, driver.Driver, *driver.Spec) error                   // does a driver's work per template
	Create  func(context.Context, driver.Driver, driver.Spec) (driver.Instance, error) // creates an instance
	Remove  func(context.Context, driver.Driver, sandbox.ID, driver.Instance) error    // removes an instance, or what is left of one
	Log     *slog.Logger
}

// Pool is a warm pool.
type Pool struct {
	cfg  Config
	poke chan struct{} // has a value when there may be work for Run

	mu       sync.Mutex
	specs    map[string]*warmSpec
	obsolete []Instance // to be removed
	creating int        // instances being created for sandboxes
}

// warmSpec is a spec and the warm instances of it.
type warmSpec struct {
	driver driver.Driver
	spec   driver.Spec     // without ID and Dir
	tree   *templates.Tree // that they are based on; nil: the host's own files
	used   time.Time
	ready  []Instance
}

// Instance is an instance without a sandbox. It keeps its own name when a sandbox gets it.
type Instance struct {
	ID     sandbox.ID
	Driver driver.Driver
	Inst   driver.Instance // nil: the create failed, and its remains are to be removed
}

// New returns an empty pool.
func New(cfg Config) *Pool {
	return &Pool{cfg: cfg, poke: make(chan struct{}, 1), specs: make(map[string]*warmSpec)}
}

// wake has Run check for work.
func (p *Pool) wake() { waiting.Notify(p.poke) }

// BeginCreate begins the creation of an instance for a sandbox, until EndCreate. The pool creates
// none meanwhile.
func (p *Pool) BeginCreate() { p.count(1) }

// EndCreate ends what BeginCreate began.
func (p *Pool) EndCreate() { p.count(-1) }

func (p *Pool) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.creating += n; p.creating == 0 {
		p.wake()
	}
}

// key returns the key of a spec in the pool and the part that its instances share; false if none
// are kept.
func (p *Pool) key(d driver.Driver, s driver.Spec) (string, driver.Spec, bool) {
	if p.cfg.Size == 0 || s.From != "" || len(s.Volumes) > 0 { // such an instance is its sandbox's own
		return "", s, false
	}
	s.ID, s.Dir = "", ""
	key, err := json.Marshal(s)
	return d.Name() + string(key), s, err == nil
}

// Acquire takes a warm instance for the spec, if there is one, and has another one created.
func (p *Pool) Acquire(d driver.Driver, s driver.Spec) (Instance, bool) {
	key, _, ok := p.key(d, s)
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.specs[key]
	if !ok || k == nil {
		return Instance{}, false
	}
	k.used = time.Now()
	for len(k.ready) > 0 {
		warm := k.ready[0]
		k.ready = k.ready[1:]
		select {
		case <-warm.Inst.Done():
			p.obsolete = append(p.obsolete, warm)
			p.wake()
		default:
			p.wake()
			return warm, true
		}
	}
	return Instance{}, false
}

// Keep adds the spec of a sandbox that is being created to the pool. Its driver is prepared.
func (p *Pool) Keep(d driver.Driver, s driver.Spec) {
	key, s, ok := p.key(d, s)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ok || p.specs[key] != nil || len(p.specs) >= maxWarmSpecs {
		return
	}
	k := &warmSpec{driver: d, spec: s, used: time.Now()}
	if id, err := template.ParseID(s.Template); err == nil {
		k.tree = p.cfg.Hold(id)
	}
	p.specs[key] = k
}

// next returns the work of Run: instances to remove, and a spec that lacks an instance. wait is
// how long until there may be work, if there is nothing.
func (p *Pool) next(now time.Time) (old []Instance, lacks *warmSpec, wait time.Duration) {
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
		if len(k.ready) < p.cfg.Size && p.creating == 0 {
			lacks = k
		}
	}
	return old, lacks, wait
}

// add adds a new instance to the pool.
func (p *Pool) add(k *warmSpec, warm Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k.ready = append(k.ready, warm)
}

// expire removes a spec of which no instance can be created, unless a sandbox has requested one
// since.
func (p *Pool) expire(k *warmSpec, used time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.used.Equal(used) {
		k.used = time.Time{}
	}
}

// usedAt returns when an instance of the spec was last requested.
func (p *Pool) usedAt(k *warmSpec) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return k.used
}

// Run keeps the pool filled until ctx ends, and then drains it, unless runCtx has ended: the next
// run removes the instances of one that was killed.
func (p *Pool) Run(ctx, runCtx context.Context) {
	defer p.drain(runCtx)
	if p.cfg.Size == 0 {
		return
	}
	for {
		old, k, wait := p.next(time.Now())
		p.discard(runCtx, old)
		if k != nil && !waiting.Sleep(ctx, warmPause) {
			return
		}
		if k != nil && p.idle() {
			p.create(ctx, runCtx, k)
			continue
		}
		select {
		case <-p.poke:
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

func (p *Pool) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.creating == 0
}

// create creates an instance. The journal has it before, like a sandbox's. If that fails, as on a
// full disk, the spec expires.
func (p *Pool) create(ctx, runCtx context.Context, k *warmSpec) {
	spec, used := k.spec, p.usedAt(k)
	spec.ID = sandbox.NewID()
	spec.Dir = p.cfg.Dir(spec.ID)
	spec.ShimArgs = append(slices.Clone(spec.ShimArgs), "-rehearse")
	var inst driver.Instance
	err := os.MkdirAll(spec.Dir, 0o700)
	if err == nil {
		err = p.cfg.Record(spec.ID, k.driver.Name(), k.tree)
	}
	if err == nil {
		err = p.cfg.Prepare(ctx, k.driver, &spec)
	}
	if err == nil {
		inst, err = p.cfg.Create(ctx, k.driver, spec)
	}
	if err == nil {
		p.add(k, Instance{spec.ID, k.driver, inst})
		return
	}
	p.expire(k, used)
	if !kind.Is(err, kind.Canceled) {
		p.cfg.Log.Warn("create warm instance failed", "driver", k.driver.Name(), "err", err)
	}
	p.discard(runCtx, []Instance{{spec.ID, k.driver, nil}})
}

// drain removes the warm instances on a clean exit.
func (p *Pool) drain(runCtx context.Context) {
	p.mu.Lock()
	old := p.obsolete
	for _, k := range p.specs {
		old = append(old, k.ready...)
		k.ready = nil
	}
	p.mu.Unlock()
	p.discard(runCtx, old)
}

// discard removes instances. One that cannot be removed is retried on the next call, and by the
// next run.
func (p *Pool) discard(runCtx context.Context, old []Instance) {
	for _, warm := range old {
		if runCtx.Err() != nil {
			return
		}
		err := p.cfg.Remove(runCtx, warm.Driver, warm.ID, warm.Inst)
		if err == nil {
			err = p.cfg.Forget(warm.ID)
		}
		if err != nil {
			p.cfg.Log.Error("remove instance failed", "instance", warm.ID, "err", err)
			p.discardLater(warm)
		}
	}
}

// discardLater queues an instance for removal.
func (p *Pool) discardLater(warm Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.obsolete = append(p.obsolete, warm)
}
