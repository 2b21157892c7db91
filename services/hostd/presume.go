package hostd

import (
	"context"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// assumeTail continues with a running process from what the catalogue and the shim have. Where
// its record ends is read when there is something to append: most of a thousand processes are
// silent at any moment, and the others need not wait until all records have been read. It returns
// false if the record must be read first.
func (p *proc) presume() bool {
	sum, rev, ok := p.h.view.Process(p.id)
	if !ok || !sum.Active() || sum.Started.IsZero() || sum.Host != p.ref.Host {
		return false
	}
	p.sum, p.rev, p.spec, p.presumed = sum, rev, sum.Spec, true
	p.mu.Lock()
	last := p.known.First - 1 // the shim had the ack
	p.mu.Unlock()
	p.goOn(last)
	p.note()
	p.setSent()
	return true
}

// verifyTail reads where a record ends whose tail was assumed, before anything is appended.
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

// tails are the ends of the records of a sandbox's processes when this run began, read in one
// request: a thousand processes with output at the same moment need not read them one by one.
type tips struct {
	read chan struct{} // closed when of is set
	of   map[process.ID]events.Tip
}

// loadTails reads the tails of the processes of a previous run.
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
			b.h.slog.Info("read tails of records failed, reading them one by one", "sandbox", b.id, "err", err)
		}
	})
}

// useTail is verifyTail for events from the shim. If the tail that was read is out of date, the
// append fails and repeats with the current one.
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

// unstored returns the part of evs that is not stored yet: a previous run may have stored what it
// did not ack.
func (p *proc) fresh(evs []process.Event) []process.Event {
	for len(evs) > 0 && evs[0].Seq <= p.w.Last() {
		evs = evs[1:]
	}
	return evs
}
