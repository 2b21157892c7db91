// Package audit writes the audit trail of one run of a gateway, and serves the whole trail to
// operators.
//
// # Denials
// [Writer.Deny] returns when a denial is stored, so that a client has no response that the trail
// lacks, but after [wait] at the latest: while the log cannot be reached, denials wait in memory.
// Equal denials that wait are stored as one entry with their number: a flood of them takes
// bounded space.
package audit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/events/attachment"
	"github.com/millrace/millrace/events/audit"
	"github.com/millrace/millrace/events/kind"
)

const (
	wait       = time.Second      // of a denial until it is stored
	flushing   = 2 * time.Second  // maximum time to store what waits when the gateway stops
	maxWaiting = 10_000           // different denials that wait; more are dropped, which is logged
	maxBatch   = 256              // entries of a message
	storing    = 30 * time.Second // an attempt to store a message; it is repeated
)

// Trail stores the audit trail. *events.Log implements it.
type Trail interface {
	AppendAudit(ctx context.Context, chain string, rev uint64, links []audit.Link) (uint64, error)
	ReadAudit(ctx context.Context, from uint64) (links []audit.Link, next uint64, err error)
}

// Writer writes one chain. Its methods may be called concurrently.
type Writer struct {
	trail Trail
	slog  *slog.Logger
	wake  chan struct{}

	mu      sync.Mutex
	waiting map[key]*denial
	order   []*denial

	// The end of the chain. Only Run uses it.
	chain string
	seq   uint64
	rev   uint64
	prev  audit.Hash
}

// key is what equal denials have in common.
type key struct {
	event, method, path, tenant, owner, source string
	status                                     int
}

// denial is an entry that waits.
type denial struct {
	key    key
	entry  audit.Entry
	stored chan struct{}
}

// NewWriter returns the writer of a new chain.
func NewWriter(t Trail, log *slog.Logger) *Writer {
	w := &Writer{trail: t, slog: log, wake: make(chan struct{}, 1), waiting: make(map[key]*denial)}
	w.begin()
	return w
}

// begin starts a new chain.
func (w *Writer) begin() {
	w.chain, w.seq, w.rev = attachment.NewID(), 0, 0
	w.prev = audit.Start(w.chain)
}

// Deny adds a denial to the trail. The caller sets all but the chain, the seq and the count.
func (w *Writer) Deny(ctx context.Context, e audit.Entry) {
	d := w.add(e)
	if d == nil {
		return
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-d.stored:
	case <-late.C:
	case <-ctx.Done():
	}
}

func (w *Writer) add(e audit.Entry) *denial {
	k := key{e.Event, e.Method, e.Path, e.Tenant, e.Owner, e.Source, e.Status}
	w.mu.Lock()
	defer w.mu.Unlock()
	d, ok := w.waiting[k]
	if !ok {
		if len(w.order) >= maxWaiting {
			w.slog.Error("drop audit entry: too many wait for the log", "event", e.Event, "tenant", e.Tenant)
			return nil
		}
		d = &denial{k, e, make(chan struct{})}
		w.waiting[k], w.order = d, append(w.order, d)
	}
	d.entry.Count++
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return d
}

// take removes the oldest denials that wait.
func (w *Writer) take() []*denial {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.order), maxBatch)
	out := w.order[:n:n]
	w.order = w.order[n:]
	for _, d := range out {
		delete(w.waiting, d.key)
	}
	return out
}

// Run stores denials until ctx ends, and then what still waits.
func (w *Writer) Run(ctx context.Context) {
	for {
		select {
		case <-w.wake:
			w.flush(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushing)
			defer cancel()
			w.flush(last)
			return
		}
	}
}

// flush stores what waits.
func (w *Writer) flush(ctx context.Context) {
	for all := w.take(); len(all) > 0; all = w.take() {
		for {
			err := w.store(ctx, all)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				w.slog.Error("store audit entries failed", "entries", len(all), "err", err)
				return
			}
			w.slog.Warn("store audit entries failed, retrying", "entries", len(all), "err", err)
		}
		for _, d := range all {
			close(d.stored)
		}
	}
}

// store appends entries to the chain.
func (w *Writer) store(ctx context.Context, all []*denial) error {
	ctx, cancel := context.WithTimeout(ctx, storing)
	defer cancel()
	seq, prev := w.seq, w.prev
	links := make([]audit.Link, len(all))
	for i, d := range all {
		seq++
		d.entry.Chain, d.entry.Seq = w.chain, seq
		l, err := audit.NewLink(prev, &d.entry)
		if err != nil {
			return err
		}
		links[i], prev = l, l.Hash
	}
	rev, err := w.trail.AppendAudit(ctx, w.chain, w.rev, links)
	switch {
	case err == nil:
		w.seq, w.rev, w.prev = seq, rev, prev
	case kind.Is(err, kind.Conflict): // the end of the chain is not in the log any more
		w.begin()
	}
	return err
}
