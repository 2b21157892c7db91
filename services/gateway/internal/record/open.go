package record

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
	"github.com/millrace/millrace/services/gateway/internal/operations"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Records is the part of the operations that Open uses, implemented by [Gateway].
type Records interface {
	Process(ctx context.Context, p core.Principal, id process.ID) (process.Summary, error)
	Tail(ctx context.Context, p core.Principal, id process.ID) (record.Tail, error)
	Read(ctx context.Context, p core.Principal, id process.ID, after process.Seq) (stream.Source, error)
}

// Gateway adapts operations to surfaces: the readers become stream sources. An open source holds its
// sandbox (see [lifecycle.Lifecycle.Hold]), except for onlookers.
type Gateway struct {
	*core.Core
	*lifecycle.Lifecycle
	*procs.Procs
	observes bool
}

// NewGateway returns the Gateway of a gateway's operations.
func NewGateway(ops *operations.Operations) Gateway {
	return Gateway{Core: ops.Core, Lifecycle: ops.Lifecycle, Procs: ops.Procs}
}

// NewObserver returns a Gateway whose sources do not hold their sandboxes: reading a record is not using
// its sandbox.
func NewObserver(ops *operations.Operations) Gateway {
	g := NewGateway(ops)
	g.observes = true
	return g
}

// heldSource holds a sandbox until it is closed.
type heldSource struct {
	stream.Source
	release func()
}

// Close releases the record and the sandbox.
func (h *heldSource) Close() {
	h.Source.Close()
	h.release()
}

// held returns a source that holds the sandbox if that has an idle timeout.
func (g Gateway) held(id sandbox.ID, src stream.Source) stream.Source {
	if g.observes {
		return src
	}
	if release, ok := g.Hold(id); ok {
		return &heldSource{src, release}
	}
	return src
}

// Read implements [Records].
func (g Gateway) Read(ctx context.Context, p core.Principal, id process.ID, after process.Seq) (stream.Source, error) {
	r, err := g.Procs.Read(ctx, p, id, after)
	if err != nil {
		return nil, err // not r: a nil reader is not a nil Source
	}
	if p.Onlooker {
		return r, nil
	}
	return g.held(id.Sandbox(), r), nil
}

// Start starts a process and returns its record from the beginning.
func (g Gateway) Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt procs.StartOptions) (process.ID, stream.Source, error) {
	a, err := g.Procs.Start(ctx, p, sbx, spec, opt)
	if err != nil {
		return "", nil, err
	}
	return a.ID, g.held(sbx, a.Reader), nil
}

// Env returns the environment of an active process.
func (g Gateway) Env(s *process.Summary) (map[string]string, error) {
	return s.Spec.OpenEnv(g.Sealer, s.Tenant, s.ID)
}

// Options select a part of a record. The zero value is everything stored.
type Options struct {
	Position
	Follow bool // continue after the stored events, to the end of the record
	Limit  int  // maximum number of events; 0: unlimited
}

// Opened is a record at a position.
type Opened struct {
	Source stream.Source // must be closed
	After  process.Seq   // the seq after which it begins
	Tail   record.Tail   // tail when it was opened; zero if the record has no event yet
}

// AtEnd reports whether nothing can follow.
func (o *Opened) AtEnd() bool { return o.Tail.Finished != nil && o.After == o.Tail.Last }

// Open opens a record. Its error is NotFound if the record does not exist or belongs to
// another tenant, and a *RangeError if the position cannot be read.
func Open(ctx context.Context, r Records, p core.Principal, id process.ID, opt Options) (Opened, error) {
	tip, err := tailOf(ctx, r, p, id, opt.After)
	if err != nil {
		return Opened{}, err
	}
	if !opt.Follow {
		if tip, err = awaitEnd(ctx, r, p, id, tip); err != nil {
			return Opened{}, err
		}
	}
	after := opt.After
	if opt.Now {
		after = tip.Last
	}
	if after > tip.Last && !tip.Stale {
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
	return Opened{Source: src, After: after, Tail: tip}, nil
}

// tailOf returns the tail of a record. If nothing is stored, the process has only just
// started, or it is so old that nothing is retained, or it is running and was idle for
// longer than the retention. In the last case, the reader's position is the best
// estimate.
func tailOf(ctx context.Context, r Records, p core.Principal, id process.ID, after process.Seq) (record.Tail, error) {
	tip, err := core.TailFrom(ctx, r, p, id, after)
	if !kind.Is(err, kind.NotFound) {
		return tip, err
	}
	sum, err := r.Process(ctx, p, id)
	switch {
	case err != nil:
		return record.Tail{}, err
	case !sum.Active():
		return record.Tail{}, &RangeError{ID: id, Kind: kind.Gone}
	case !sum.Started.IsZero():
		return record.Tail{Last: after}, nil
	}
	return record.Tail{}, nil
}

const (
	// endWait is how long a read of everything stored waits for the end of a process that is
	// known to have ended.
	endWait = 2 * time.Second
	endPoll = 20 * time.Millisecond
)

// awaitEnd waits until the record of a process that has ended according to the catalog
// has its end. The end is stored a moment later, or by the host that repairs a record
// whose end the log lost. If that takes longer, the error is Unavailable: a truncated
// record must not look complete.
func awaitEnd(ctx context.Context, r Records, p core.Principal, id process.ID, tip record.Tail) (record.Tail, error) {
	if tip.Finished != nil || tip.Last == 0 {
		return tip, nil
	}
	sum, err := r.Process(ctx, p, id)
	if err != nil || sum.Active() {
		return tip, nil //nolint:nilerr // without a summary, the tail is all that is known
	}
	tip, err = core.AwaitTail(ctx, r, p, id, tip, endWait, endPoll, func(tip *record.Tail) bool { return tip.Finished != nil })
	if err == nil && tip.Finished == nil {
		err = kind.New(kind.Unavailable, "read", string(id), "the end of the record is not stored yet: try again")
	}
	return tip, err
}

// begin reads the first events, which are stored, so that a position that cannot be read
// is detected before the response begins.
func begin(ctx context.Context, src stream.Source, id process.ID, after process.Seq) (stream.Source, error) {
	batch, err := src.Next(ctx, 0)
	if err == nil {
		return &prefetched{Source: src, first: batch, after: after}, nil
	}
	src.Close()
	switch {
	case kind.Is(err, kind.Gone):
		first, _ := record.FirstSeq(err)
		return nil, &RangeError{ID: id, Kind: kind.Gone, First: first}
	case kind.Is(err, kind.Deadline):
		return nil, kind.Wrap(kind.Unavailable, "read", string(id), err)
	}
	return nil, err
}

// prefetched is a Source whose first events were already read.
type prefetched struct {
	stream.Source
	first []process.Event
	after process.Seq // before first
}

// After returns the seq of the last event returned.
func (b *prefetched) After() process.Seq {
	if b.first != nil {
		return b.after
	}
	return b.Source.After()
}

// Next returns the first events, then those of the Source.
func (b *prefetched) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	if batch := b.first; batch != nil {
		b.first = nil
		return batch, nil
	}
	return b.Source.Next(ctx, idle)
}
