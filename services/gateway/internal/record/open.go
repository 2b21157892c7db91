package record

import (
	"context"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Records is what Open needs of the gateway's core: a Gateway.
type Records interface {
	Process(ctx context.Context, p core.Principal, id process.ID) (process.Summary, error)
	Tip(ctx context.Context, p core.Principal, id process.ID) (events.Tip, error)
	Read(ctx context.Context, p core.Principal, id process.ID, after process.Seq) (stream.Source, error)
}

// Gateway is the core as surfaces use it: what yields events is a Source.
type Gateway struct{ *core.Core }

// Read is core.Core's.
func (g Gateway) Read(ctx context.Context, p core.Principal, id process.ID, after process.Seq) (stream.Source, error) {
	r, err := g.Core.Read(ctx, p, id, after)
	if err != nil {
		return nil, err // not r: a nil reader is no nil Source
	}
	return r, nil
}

// Start is core.Core's; the Source is at seq 0.
func (g Gateway) Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt core.StartOptions) (process.ID, stream.Source, error) {
	a, err := g.Core.Start(ctx, p, sbx, spec, opt)
	if err != nil {
		return "", nil, err
	}
	return a.ID, a.Reader, nil
}

// Options say what part of a record is wanted. The zero value is all that is
// stored.
type Options struct {
	Place
	Follow bool // go on after what is stored, to the end of the record
	Limit  int  // at most so many events; 0: no limit
}

// Opened is a record at a place.
type Opened struct {
	Source stream.Source // to be closed
	After  process.Seq   // where it begins
	Tip    events.Tip    // as it was; zero if the record has no event yet
}

// AtEnd reports whether nothing can follow.
func (o *Opened) AtEnd() bool { return o.Tip.Finished != nil && o.After == o.Tip.Last }

// Open opens a record. Errors: NotFound for what is unknown or another's, a
// *RangeError for a place that cannot be read.
func Open(ctx context.Context, r Records, p core.Principal, id process.ID, opt Options) (Opened, error) {
	tip, err := tipOf(ctx, r, p, id, opt.After)
	if err != nil {
		return Opened{}, err
	}
	if !opt.Follow {
		if tip, err = whole(ctx, r, p, id, tip); err != nil {
			return Opened{}, err
		}
	}
	after := opt.After
	if opt.Now {
		after = tip.Last
	}
	// A tip of the leader's: no reader anywhere has seen an event past it.
	if after > tip.Last && !tip.Lags {
		return Opened{}, &RangeError{ID: id, Kind: kind.Invalid, Last: tip.Last}
	}
	src, err := r.Read(ctx, p, id, after)
	if err != nil {
		return Opened{}, err
	}
	if after < tip.Last {
		if src, err = begin(ctx, src, id, after); err != nil {
			return Opened{}, err
		}
	}
	if !opt.Follow || opt.Limit > 0 {
		src = bound(src, after, tip.Last, opt)
	}
	return Opened{Source: src, After: after, Tip: tip}, nil
}

// tipOf tells what is stored. Nothing at all is a process that has only begun,
// one so old that nothing is left, or one that runs and was silent for so long:
// then nobody knows better than its reader what the last event was.
func tipOf(ctx context.Context, r Records, p core.Principal, id process.ID, after process.Seq) (events.Tip, error) {
	tip, err := r.Tip(ctx, p, id)
	if !kind.Is(err, kind.NotFound) {
		return tip, err
	}
	sum, err := r.Process(ctx, p, id)
	switch {
	case err != nil:
		return events.Tip{}, err
	case !sum.Active():
		return events.Tip{}, &RangeError{ID: id, Kind: kind.Gone}
	case !sum.Started.IsZero():
		return events.Tip{Last: after}, nil
	}
	return events.Tip{}, nil
}

const (
	// endWait is how long a read of all that is stored waits for the end of a process that
	// is known to have ended.
	endWait = 2 * time.Second
	endLook = 20 * time.Millisecond
)

// whole waits until the record of a process that ended has its end, as the catalogue says:
// it is stored a moment later, or by the host that completes a record of which the log lost
// the end. Unavailable where that takes longer: a record that is cut must not look whole.
func whole(ctx context.Context, r Records, p core.Principal, id process.ID, tip events.Tip) (events.Tip, error) {
	if tip.Finished != nil || tip.Last == 0 {
		return tip, nil
	}
	sum, err := r.Process(ctx, p, id)
	if err != nil || sum.Active() {
		return tip, nil //nolint:nilerr // the record is there, whatever the catalogue says
	}
	timer := time.NewTimer(endWait)
	defer timer.Stop()
	look := time.NewTicker(endLook)
	defer look.Stop()
	for tip.Finished == nil {
		select {
		case <-look.C:
		case <-timer.C:
			return tip, kind.New(kind.Unavailable, "read", string(id), "the end of the record is not stored yet, try again")
		case <-ctx.Done():
			return tip, ctx.Err()
		}
		if tip, err = r.Tip(ctx, p, id); err != nil {
			return tip, err
		}
	}
	return tip, nil
}

// begin reads the first events, which are stored, so that a place that cannot
// be read is known before anything is answered.
func begin(ctx context.Context, src stream.Source, id process.ID, after process.Seq) (stream.Source, error) {
	batch, err := src.Next(ctx, 0)
	if err == nil {
		return &begun{Source: src, first: batch, after: after}, nil
	}
	src.Close()
	switch {
	case kind.Is(err, kind.Gone):
		first, _ := events.FirstSeq(err)
		return nil, &RangeError{ID: id, Kind: kind.Gone, First: first}
	case kind.Is(err, kind.Deadline):
		return nil, kind.Wrap(kind.Unavailable, "read", string(id), err)
	}
	return nil, err
}

// begun is a Source whose first events were read already.
type begun struct {
	stream.Source
	first []process.Event
	after process.Seq // before first
}

// After is the seq of the last event given.
func (b *begun) After() process.Seq {
	if b.first != nil {
		return b.after
	}
	return b.Source.After()
}

// Next gives the first events, then those of the Source.
func (b *begun) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	if batch := b.first; batch != nil {
		b.first = nil
		return batch, nil
	}
	return b.Source.Next(ctx, idle)
}
