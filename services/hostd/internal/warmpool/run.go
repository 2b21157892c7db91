package warmpool

import (
	"context"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// removals is the number of concurrent removals. A removal mostly waits for the kernel.
const removals = 8

// next returns the work of Run: instances to remove, and the spec that lacks the most instances;
// nil if there is none, or no CPU time for it. wait is how long until there may be work, if there
// is nothing.
func (p *Pool) next(now time.Time) (old []Instance, lacks *warmSpec, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, p.obsolete = p.obsolete, nil
	wait = warmFor
	most := 0
	for key, k := range p.specs {
		idle := now.Sub(k.demand.used)
		if idle >= warmFor {
			old = append(old, k.ready...)
			k.tree.Release()
			delete(p.specs, key)
			continue
		}
		wait = min(wait, warmFor-idle)
	}
	for _, k := range p.specs {
		limit := p.limit(k, now)
		if n := len(k.ready); n > limit {
			old = append(old, k.ready[limit:]...)
			k.ready = slices.Clone(k.ready[:limit])
		} else if limit-n > most && p.creating <= maxCreating() {
			lacks, most = k, limit-n
		}
		if len(k.ready) > 0 {
			wait = min(wait, halving)
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
	if k.demand.used.Equal(used) {
		k.demand.used = time.Time{}
	}
}

// usedAt returns when an instance of the spec was last requested.
func (p *Pool) usedAt(k *warmSpec) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return k.demand.used
}

// Run keeps the pool filled until ctx ends, and then drains it, unless runCtx has ended: the next
// run removes the instances of one that was killed.
func (p *Pool) Run(ctx, runCtx context.Context) {
	defer p.drain(runCtx)
	if p.cfg.Max == 0 {
		return
	}
	for ctx.Err() == nil {
		old, k, wait := p.next(time.Now())
		p.discard(runCtx, old)
		if k != nil {
			p.create(ctx, runCtx, k)
			continue
		}
		select {
		case <-p.poke:
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
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
	var g errgroup.Group
	g.SetLimit(removals)
	for _, warm := range old {
		if runCtx.Err() != nil {
			break
		}
		g.Go(func() error {
			err := p.cfg.Remove(runCtx, warm.Driver, warm.ID, warm.Inst)
			if err == nil {
				err = p.cfg.Forget(warm.ID)
			}
			if err != nil {
				p.cfg.Log.Error("remove instance failed", "instance", warm.ID, "err", err)
				p.discardLater(warm)
			}
			return nil
		})
	}
	g.Wait() //nolint:errcheck // it returns none
}

// discardLater queues an instance for removal.
func (p *Pool) discardLater(warm Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.obsolete = append(p.obsolete, warm)
}
