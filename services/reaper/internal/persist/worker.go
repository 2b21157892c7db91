package persist

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/persistence"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
)

const (
	maxMessages = 256     // of a request
	maxBytes    = 1 << 20 // of the messages of a request, unless one alone is larger
	renewEvery  = 2 * time.Second
	// gather is how long a message waits for others of the same request.
	gather = 50 * time.Millisecond
	// quiet is how long a claim is kept without anything to send.
	quiet = 2 * time.Second
)

// worker sends the messages of one sandbox. It belongs to one goroutine.
type worker struct {
	d      *deliverer
	s      sandbox.State
	p      persistence.Progress // as stored
	feed   *feed
	queue  []message
	failed error // of the last request
}

// run reads the record of the runtime and sends what is in it. It returns at the end of the record, and
// after a request that failed, which the next run repeats.
func (w *worker) run(ctx context.Context, runtime process.Summary, exists bool) error {
	if !exists {
		if err := w.d.cfg.View.Sync(ctx); err != nil {
			return err
		}
		if runtime, exists = w.d.runtimeOf(&w.s); !exists {
			return w.done(ctx)
		}
	}
	ref := record.Ref{Host: runtime.Host, ID: runtime.ID}
	r := w.d.cfg.Log.Read(ref, w.p.After)
	defer func() { r.Close() }()
	w.feed = newFeed(max(1, w.s.Request.E2A.Persistence.Generation), w.p.Offset)
	w.feed.plain = *runtime.Spec.Tag == bootstrap.AgentTag
	for {
		idle := quiet
		if len(w.queue) > 0 {
			idle = gather
		}
		events, err := r.Next(ctx, idle)
		if first, ok := record.FirstSeq(err); ok && first > r.After()+1 { // retention dropped the beginning
			r.Close()
			r = w.d.cfg.Log.Read(ref, first-1)
			continue
		}
		if err := w.add(events); err != nil {
			w.d.cfg.Slog.Warn("read conversation for its persistence backend failed", "tenant", w.s.Tenant, "sandbox", w.s.ID, "err", err)
		}
		over := errors.Is(err, io.EOF) || kind.Is(err, kind.Gone) || kind.Is(err, kind.NotFound)
		if err != nil && !over {
			return err
		}
		if err := w.flush(ctx, over || len(events) == 0); err != nil || w.failed != nil {
			return err
		}
		if over {
			return w.done(ctx)
		}
		if len(events) == 0 {
			if err := w.pause(ctx); err != nil {
				return err
			}
		}
	}
}

// pause gives the claim up if there is nothing to send.
func (w *worker) pause(ctx context.Context) error {
	if w.p.Holder == "" || len(w.queue) > 0 {
		return nil
	}
	w.p.Holder = ""
	return w.put(ctx)
}

// add decodes events into the queue.
func (w *worker) add(events []process.Event) (first error) {
	for i := range events {
		messages, err := w.feed.add(&events[i])
		w.queue = append(w.queue, messages...)
		if first == nil {
			first = err
		}
	}
	return first
}

// flush sends full requests, and with all the rest, too, until one fails.
func (w *worker) flush(ctx context.Context, all bool) error {
	for len(w.queue) > 0 {
		n, full := w.next()
		if !full && !all {
			return nil
		}
		if err := w.deliver(ctx, w.queue[:n]); err != nil || w.failed != nil {
			return err
		}
		w.queue = w.queue[n:]
	}
	return nil
}

// next returns the number of messages of the next request, and whether no other would fit.
func (w *worker) next() (n int, full bool) {
	size := 0
	for n < len(w.queue) {
		size += w.queue[n].size
		if n == maxMessages || n > 0 && size > maxBytes {
			return n, true
		}
		n++
	}
	return n, size >= maxBytes
}

// deliver claims the progress, makes one request and stores the result.
func (w *worker) deliver(ctx context.Context, messages []message) error {
	if w.p.Holder != w.d.id {
		w.p.Holder = w.d.id
		if err := w.put(ctx); err != nil {
			return err
		}
	}
	if err := w.request(ctx, messages); err != nil {
		return err
	}
	w.p.Requests++
	if w.failed != nil {
		w.p.Failures++
		w.p.Error, w.p.Holder = describe(w.failed, w.d.cfg.Timeout), ""
		w.d.cfg.Slog.Warn("persistence backend did not accept a conversation", "tenant", w.s.Tenant, "sandbox", w.s.ID, "failures", w.p.Failures, "reason", w.p.Error)
		return w.put(ctx)
	}
	last := &messages[len(messages)-1]
	w.p.Failures, w.p.Error = 0, ""
	w.p.Events += uint64(len(messages))
	w.p.Offset, w.p.After = last.offset, last.after
	return w.put(ctx)
}

// request makes one request and renews the claim meanwhile. The request ends before the claim does. The
// error is that of the claim.
func (w *worker) request(ctx context.Context, messages []message) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	result := make(chan error, 1)
	lose := time.AfterFunc(persistence.Hold, cancel)
	defer lose.Stop()
	go func() { result <- w.d.send(ctx, &w.s, messages) }()
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case w.failed = <-result:
			return ctx.Err()
		case <-tick.C:
			began := time.Now()
			if err := w.put(ctx); err != nil {
				cancel()
				<-result //nolint:errcheck // the request is repeated
				return err
			}
			lose.Reset(persistence.Hold - time.Since(began))
		}
	}
}

// done stores that nothing is left to send.
func (w *worker) done(ctx context.Context) error {
	w.p.Done, w.p.Holder = true, ""
	return w.put(ctx)
}

func (w *worker) put(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return w.d.store.Put(ctx, &w.p)
}

// release gives the claim up, also if ctx has ended, and waits for the view, so that the next worker
// starts with what is stored.
func (w *worker) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if w.p.Holder != "" && !w.p.Done {
		w.p.Holder = ""
		w.d.store.Put(ctx, &w.p) //nolint:errcheck // the claim ends by itself
	}
	w.d.store.Sync(ctx) //nolint:errcheck // a worker with an earlier state conflicts, and ends
}
