package warmpool

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

const (
	maxWarmSpecs = 4 // specs of which instances are kept
	warmFor      = 10 * time.Minute
)

// Config configures a Pool. All fields except Acquired are required.
type Config struct {
	Max       int                                                                        // maximum number of instances; 0: no pool
	MemoryMiB uint64                                                                     // maximum memory of all instances
	Dir       func(sandbox.ID) string                                                    // returns the directory of an instance
	Hold      func(template.ID) *templates.Tree                                          // takes a reference to a template that is here; nil without it
	Record    func(id sandbox.ID, driver string, tree *templates.Tree) error             // stores that an instance is being created
	Forget    func(sandbox.ID) error                                                     // ends what Record stored
	Acquired  func(warm bool)                                                            // receives the result of each Acquire of a spec that can be kept; nil: not reported
	Prepare   func(context.Context, driver.Driver, *driver.Spec) error                   // does a driver's work per template
	Create    func(context.Context, driver.Driver, driver.Spec) (driver.Instance, error) // creates an instance
	Remove    func(context.Context, driver.Driver, sandbox.ID, driver.Instance) error    // removes an instance, or what is left of one
	Log       *slog.Logger
}

// Pool is a warm pool.
type Pool struct {
	cfg  Config
	poke chan struct{} // has a value when there may be work for Run

	mu       sync.Mutex
	specs    map[string]*warmSpec
	obsolete []Instance // to be removed
	creating int        // sandboxes being created
	draining bool       // the host accepts no new sandbox
}

// warmSpec is a spec and the warm instances of it.
type warmSpec struct {
	driver driver.Driver
	mib    uint32          // memory of an instance
	spec   driver.Spec     // without ID and Dir
	tree   *templates.Tree // that they are based on; nil: the host's own files
	demand demand
	ready  []Instance
}

// Instance is an instance without a sandbox. Its name in the directory of instances stays its own
// when a sandbox gets it.
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

// BeginCreate begins the creation of a sandbox. The function that it returns ends it, and may be
// called more than once.
func (p *Pool) BeginCreate() (end func()) {
	p.count(1)
	return sync.OnceFunc(func() { p.count(-1) })
}

func (p *Pool) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.creating += n
	if n < 0 && p.creating <= maxCreating() {
		p.wake()
	}
}

// maxCreating returns how many sandboxes may be in creation while an instance is created for the
// pool: half of the CPUs are left to them.
func maxCreating() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// SetDraining sets whether the host accepts no new sandbox. The pool is empty meanwhile.
func (p *Pool) SetDraining(draining bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = draining
	p.wake()
}

// key returns the key of a spec in the pool and the part that its instances share; false if none
// are kept.
func (p *Pool) key(o drivers.Offer, s driver.Spec) (string, driver.Spec, bool) {
	if p.cfg.Max == 0 || o.Caps.WarmMiB == 0 || s.From != "" || len(s.Volumes) > 0 { // such an instance is its sandbox's own
		return "", s, false
	}
	s.ID, s.Dir = "", ""
	key, err := json.Marshal(s)
	return o.Name() + string(key), s, err == nil
}

// Acquire takes a warm instance for the spec of a sandbox, if there is one, and has another one
// created.
func (p *Pool) Acquire(o drivers.Offer, s driver.Spec) (Instance, bool) {
	key, _, ok := p.key(o, s)
	if !ok {
		return Instance{}, false
	}
	p.mu.Lock()
	if k := p.specs[key]; k != nil {
		k.demand.add(time.Now())
	}
	p.mu.Unlock()
	for {
		warm, ok := p.take(key)
		if !ok {
			p.report(false)
			return Instance{}, false
		}
		err := rename(warm.Inst, s.HostName())
		if err == nil {
			p.report(true)
			return warm, true
		}
		p.cfg.Log.Warn("rename warm instance failed", "instance", warm.ID, "err", err)
		p.discardLater(warm)
	}
}

func (p *Pool) report(warm bool) {
	if p.cfg.Acquired != nil {
		p.cfg.Acquired(warm)
	}
}

// Stats are the current numbers of a pool.
type Stats struct {
	Ready int // instances without a sandbox
	Specs int // specs of which instances are kept
}

// Stats returns the current numbers.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{Specs: len(p.specs)}
	for _, k := range p.specs {
		s.Ready += len(k.ready)
	}
	return s
}

// rename gives an instance the host name of its sandbox, where its driver supports that.
func rename(inst driver.Instance, hostname string) error {
	r, ok := inst.(driver.Renamer)
	if !ok {
		return nil
	}
	if err := r.Rename(hostname); err != nil && !kind.Is(err, kind.Unimplemented) {
		return err
	}
	return nil
}

// take takes an instance that runs.
func (p *Pool) take(key string) (Instance, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.specs[key]
	if k == nil {
		return Instance{}, false
	}
	defer p.wake()
	for len(k.ready) > 0 {
		warm := k.ready[0]
		k.ready = k.ready[1:]
		select {
		case <-warm.Inst.Done():
			p.obsolete = append(p.obsolete, warm)
		default:
			return warm, true
		}
	}
	return Instance{}, false
}

// Keep adds the spec of a sandbox that is being created to the pool. Its driver is prepared.
func (p *Pool) Keep(o drivers.Offer, s driver.Spec) {
	key, s, ok := p.key(o, s)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ok || p.specs[key] != nil || len(p.specs) >= maxWarmSpecs {
		return
	}
	k := &warmSpec{driver: o.Driver, mib: o.Caps.WarmMiB, spec: s}
	k.demand.add(time.Now())
	if id, err := template.ParseID(s.Template); err == nil {
		k.tree = p.cfg.Hold(id)
	}
	p.specs[key] = k
}

// limit returns how many instances of a spec are kept.
func (p *Pool) limit(k *warmSpec, now time.Time) int {
	if p.draining {
		return 0
	}
	n := len(p.specs)
	return min(k.demand.instances(now, k.mib), p.cfg.Max/n, int(p.cfg.MemoryMiB)/n/int(k.mib))
}
