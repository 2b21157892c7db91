package hostd

import (
	"context"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// presume goes on with a process that runs, by what the catalogue and the shim
// say of it. Where its record ends is asked when there is something to add: most
// of a thousand processes are silent at any moment, and those that are not need
// not wait until all have been asked for. It reports false where the record must
// be read first.
func (p *proc) presume() bool {
	sum, rev, ok := p.h.view.Process(p.id)
	if !ok || !sum.Active() || sum.Started.IsZero() || sum.Host != p.ref.Host {
		return false
	}
	p.sum, p.rev, p.spec, p.presumed = sum, rev, sum.Spec, true
	p.mu.Lock()
	last := p.known.First - 1 // the shim was told that it is stored
	p.mu.Unlock()
	p.goOn(last)
	p.note()
	p.setSent()
	return true
}

// ground asks where a record ends that was presumed to go on, before anything is
// added to it.
func (p *proc) ground(ctx context.Context) error {
	if !p.presumed {
		return nil
	}
	tip, err := p.w.Recover(ctx)
	switch {
	case kind.Is(err, kind.NotFound):
		err = p.unrecorded(ctx)
	case err != nil:
	case tip.Finished != nil:
		err = p.endEntry(ctx, tip.Finished.Exit)
	default:
		err = p.mend(ctx, tip.Last)
	}
	p.presumed, p.follows = err != nil, false
	return err
}

// tips are where the records of a sandbox's processes ended when this life began,
// read all at once: a thousand that have something to say at the same moment need
// not ask one by one.
type tips struct {
	read chan struct{} // closed when of is known
	of   map[process.ID]events.Tip
}

// learn reads the tips of the processes that an earlier life left.
func (b *box) learn() {
	var ids []process.ID
	for _, s := range b.h.view.Processes(b.id, (*process.Summary).Active) {
		ids = append(ids, s.ID)
	}
	t := &tips{read: make(chan struct{})}
	b.tips = t
	b.h.wg.Go(func() {
		defer close(t.read)
		var err error
		if t.of, err = b.h.log.Tips(b.h.life, b.h.cfg.Name, ids); err != nil {
			b.h.slog.Info("records are asked for their ends one by one", "sandbox", b.id, "err", err)
		}
	})
}

// follow is ground for what the shim says next. Where the tip that was read is out
// of date, the append finds out.
func (p *proc) follow(ctx context.Context) error {
	if !p.presumed || p.follows {
		return nil
	}
	if p.b.tips == nil {
		return p.ground(ctx)
	}
	select {
	case <-p.b.tips.read:
	case <-ctx.Done():
		return ctx.Err()
	}
	t, ok := p.b.tips.of[p.id]
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	if !ok || t.Finished != nil || t.Host != p.ref.Host || t.Epoch >= p.h.epoch || known == nil || known.First > t.Last+1 {
		return p.ground(ctx)
	}
	p.w.Follow(t)
	p.follows = true
	return nil
}

// fresh is what of evs is not stored yet: an earlier life may have stored what it
// could not ack any more.
func (p *proc) fresh(evs []process.Event) []process.Event {
	for len(evs) > 0 && evs[0].Seq <= p.w.Last() {
		evs = evs[1:]
	}
	return evs
}
