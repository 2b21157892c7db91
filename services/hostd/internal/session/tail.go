package session

import (
	"context"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
)

// assumeTail continues with a running process from what the catalog and the shim have. Where
// its record ends is read when there is something to append: most of a thousand processes are
// silent at any moment, and the others need not wait until all records have been read. It returns
// false if the record must be read first.
func (p *proc) assumeTail() bool {
	sum, rev, ok := p.h.cfg.View.Process(p.id)
	if !ok || !sum.Active() || sum.Started.IsZero() || sum.Host != p.ref.Host {
		return false
	}
	p.entry.sum, p.entry.rev, p.spec, p.assumed = sum, rev, sum.Spec, true
	p.mu.Lock()
	last := p.known.First - 1 // the shim had the ack
	p.mu.Unlock()
	p.continueFrom(last)
	p.replies.releaseCursor()
	p.ss.queue.start(p)
	return true
}

// verifyTail reads where a record ends whose tail was assumed, before anything is appended.
func (p *proc) verifyTail(ctx context.Context) error {
	if !p.assumed {
		return nil
	}
	tail, err := p.w.Recover(ctx)
	switch {
	case kind.Is(err, kind.NotFound):
		err = p.unrecorded(ctx)
	case err != nil:
	case tail.Finished != nil:
		err = p.entry.end(ctx, tail.Finished.Exit)
	default:
		err = p.repair(ctx, tail.Last)
	}
	p.assumed, p.usesTail = err != nil, false
	return err
}

// tails are the ends of the records of a sandbox's processes when this run began, read in one
// request: a thousand processes with output at the same moment need not read them one by one.
type tails struct {
	read      chan struct{} // closed when of is set
	byProcess map[process.ID]record.Tail
}

// loadTails reads the tails of the processes of a previous run.
func (ss *Session) loadTails() {
	var ids []process.ID
	for _, s := range ss.h.cfg.View.ActiveProcesses(ss.cfg.ID, func(*process.Summary) bool { return true }) {
		ids = append(ids, s.ID)
	}
	t := &tails{read: make(chan struct{})}
	ss.tails = t
	ss.h.cfg.Spawn("read tails", func(ctx context.Context) (err error) {
		defer close(t.read)
		if t.byProcess, err = ss.h.cfg.Log.LoadTails(ctx, ss.h.cfg.Name, ids); err != nil {
			ss.h.cfg.Slog.Info("read tails of records failed, reading them one by one", "sandbox", ss.cfg.ID, "err", err)
		}
		return nil
	})
}

// useTail is verifyTail for events from the shim. If the tail that was read is out of date, the
// append fails and repeats with the current one.
func (p *proc) useTail(ctx context.Context) error {
	if !p.assumed || p.usesTail {
		return nil
	}
	if p.ss.tails == nil {
		return p.verifyTail(ctx)
	}
	select {
	case <-p.ss.tails.read:
	case <-ctx.Done():
		return ctx.Err()
	}
	t, ok := p.ss.tails.byProcess[p.id]
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	if !ok || t.Finished != nil || t.Host != p.ref.Host || t.Epoch >= p.h.cfg.Epoch || known == nil || known.First > t.Last+1 {
		return p.verifyTail(ctx)
	}
	p.w.AssumeTail(t)
	p.usesTail = true
	return nil
}

// unstored returns the part of evs that is not stored yet: a previous run may have stored what it
// did not ack.
func (p *proc) unstored(evs []process.Event) []process.Event {
	for len(evs) > 0 && evs[0].Seq <= p.w.Last() {
		evs = evs[1:]
	}
	return evs
}
