package hostd

import (
	"context"

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
	p.presumed = err != nil
	return err
}

// fresh is what of evs is not stored yet: an earlier life may have stored what it
// could not ack any more.
func (p *proc) fresh(evs []process.Event) []process.Event {
	for len(evs) > 0 && evs[0].Seq <= p.w.Last() {
		evs = evs[1:]
	}
	return evs
}
