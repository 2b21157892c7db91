package deliver

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/lives"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/webhook"
	"github.com/millrace/millrace/internal/waiting"
)

const (
	// window is the maximum number of events of a webhook in memory.
	window = 32
	// maxConcurrent is the maximum number of concurrent requests to a healthy receiver, each for a
	// different sandbox. After a failure the maximum is one.
	maxConcurrent = 8

	// maxRead is the maximum number of events of sandboxes in a read.
	maxRead = 256

	storeEvery     = 250 * time.Millisecond // while events are delivered
	renewEvery     = 2 * time.Second
	releaseTimeout = 2 * time.Second // limit for releasing a claim at the end
)

// item is an event in the window.
type item struct {
	at         webhook.Position
	ref        webhook.Ref // of a redelivery
	ev         *webhook.Event
	redelivery bool // a requested redelivery: unordered and not counted by the cursor
	attempts   int
	next       time.Time // earliest time of the next attempt
	busy       bool
	done       bool
}

// result is the outcome of one attempt.
type result struct {
	items   []*item // of a batch: several
	attempt webhook.Attempt
}

// worker delivers one webhook's events as long as there are any and it holds the claim. Only
// the attempts run in other goroutines.
type worker struct {
	claim
	queue   []*item // events of sandboxes after the cursor, in order
	lives   []*item // the same of processes
	extra   []*item // requested redeliveries
	running int
	batch   bool         // a batch is being sent
	limit   int          // of the events in the next batch; 0: that of the webhook
	failing bool         // the last attempt failed
	pause   time.Time    // end of the pause before the next batch
	reader  lives.Cursor // after lives
	active  time.Time    // when there were events last
	results chan result
	logging sync.Mutex // held while an attempt is recorded
}

// run claims the webhook, delivers, and releases it.
func (w *worker) run(ctx context.Context) {
	h, ok := w.d.cfg.View.Webhook(w.tenant, w.id)
	if !ok {
		return
	}
	w.reader, w.active = w.d.reader(&h), time.Now()
	cursor := h.Cursor
	cursor.At, cursor.Processes = h.After(), h.AfterProcesses()
	held, lose, ok := w.take(ctx, cursor)
	defer lose()
	if !ok {
		return
	}
	err := w.deliver(held)
	lose()
	for ; w.running > 0; w.running-- {
		<-w.results
	}
	if err != nil && ctx.Err() == nil {
		w.d.cfg.Slog.Warn("deliver webhook failed", "tenant", w.tenant, "webhook", w.id, "err", err)
	}
	if kind.Is(err, kind.Conflict) {
		return // another deliverer has the claim
	}
	if len(w.lives) == 0 {
		w.d.setReader(w.id, w.cursor.Processes, w.reader)
	}
	w.release(ctx)
	if err != nil {
		waiting.Sleep(ctx, w.d.cfg.Backoff) // no immediate retry
	}
}

// deliver works until no events are left, or the webhook is disabled. It returns a Conflict
// if the claim was lost.
func (w *worker) deliver(ctx context.Context) error {
	wake := time.NewTimer(0)
	defer wake.Stop()
	for {
		h, ok := w.d.cfg.View.Webhook(w.tenant, w.id)
		if !ok || h.Removed || !h.Enabled {
			return nil
		}
		w.launch(ctx, &h) // before it reads: a request may run meanwhile
		changed := w.d.lives.Changed()
		if err := w.fill(ctx, &h); err != nil {
			return err
		}
		switch read, err := w.fillLives(ctx, &h); {
		case err != nil:
			return err
		case !read: // it receives none, or the window is full
			changed = nil
		}
		w.launch(ctx, &h)
		if w.storeDue() && !w.store(ctx) {
			return kind.New(kind.Conflict, "deliver", string(w.id), "the claim was lost")
		}
		if w.over(&h) {
			return nil
		}
		wake.Reset(w.wait())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake.C:
		case <-changed:
		case r := <-w.results:
			w.settle(&r)
			if it := r.items[0]; it.redelivery && it.done {
				if err := w.redelivered(ctx, it); err != nil {
					return err
				}
			}
		}
	}
}

// over reports whether no events are left. A worker with events of processes waits for others: they
// come often.
func (w *worker) over(h *catalog.Hook) bool {
	if len(w.queue)+len(w.lives)+len(w.extra)+w.running > 0 {
		w.active = time.Now()
		return false
	}
	return !h.ReceivesProcesses() || time.Since(w.active) >= renewEvery
}

// fill reads the next events into the window.
func (w *worker) fill(ctx context.Context, h *catalog.Hook) error {
	after := w.cursor.At
	if n := len(w.queue); n > 0 {
		after = w.queue[n-1].at
	}
	var at []webhook.Position
	if free := windowOf(h) - len(w.queue); free > 0 {
		at = w.d.cfg.View.LifecycleAfter(w.tenant, after, h.Receives, min(free, maxRead))
	}
	queued := len(at)
	var again []webhook.Ref
	for _, ref := range h.Redeliveries.Events {
		if slices.ContainsFunc(w.extra, func(it *item) bool { return it.ref == ref }) || len(w.extra)+len(again) >= window {
			continue
		}
		if ref.Process != "" {
			if err := w.redeliverLife(ctx, ref); err != nil {
				return err
			}
			continue
		}
		again, at = append(again, ref), append(at, ref.Position)
	}
	if len(at) == 0 {
		return nil
	}
	all, err := w.d.cfg.Log.LifecycleEvents(ctx, w.tenant, at)
	if err != nil {
		return err
	}
	for i, p := range at {
		it := &item{at: p, redelivery: i >= queued}
		if j := slices.IndexFunc(all, func(e webhook.Event) bool { return e.Ref.Position == p }); j >= 0 {
			it.ev = &all[j]
		}
		it.done = it.ev == nil // its record was removed
		if !it.redelivery {
			w.queue = append(w.queue, it)
			continue
		}
		it.ref = again[i-queued]
		if w.extra = append(w.extra, it); it.done {
			if err := w.redelivered(ctx, it); err != nil {
				return err
			}
		}
	}
	return nil
}

// launch starts the attempts that are due: for each sandbox, the first unfinished event.
func (w *worker) launch(ctx context.Context, h *catalog.Hook) {
	limit := maxConcurrent
	if w.failing {
		limit = 1
	}
	now := time.Now()
	waits := make(map[sandbox.ID]bool)
	all := w.extra
	if h.Batch > 1 {
		w.launchBatch(ctx, h, now)
	} else {
		all = slices.Concat(w.queue, w.lives, w.extra)
	}
	for _, it := range all {
		if it.done || !it.redelivery && waits[it.ev.Ref.Sandbox] {
			continue
		}
		waits[it.ev.Ref.Sandbox] = waits[it.ev.Ref.Sandbox] || !it.redelivery
		if it.busy || it.next.After(now) || w.running >= limit {
			continue
		}
		it.busy = true
		w.running++
		number := it.attempts + 1
		go func() {
			w.results <- result{[]*item{it}, w.attempt(ctx, h, []*webhook.Event{it.ev}, number)} // has capacity for all results
		}()
	}
	w.advance()
}

// settle processes the result of an attempt.
func (w *worker) settle(r *result) {
	w.running--
	w.cursor.Attempts++
	w.dirty = true
	w.failing = r.attempt.Failed()
	next := time.Now().Add(w.d.backoff(int(r.attempt.Number)))
	if r.attempt.Events > 0 {
		w.batch = false
	}
	divided := refusedBatch(&r.attempt)
	switch {
	case divided: // each half at once, until the events that the receiver refuses are alone
		w.limit, next = len(r.items)/2, time.Now()
	case (!w.failing || r.attempt.Last) && r.attempt.Events > 0 && len(r.items) >= w.limit:
		w.limit *= 2 // the receiver may have refused one event only
	}
	for _, it := range r.items {
		it.busy = false
		if !divided { // else the event itself was not tried yet
			it.attempts++
		}
		switch {
		case !w.failing:
			it.done = true
			w.cursor.Done++
		case r.attempt.Last:
			it.done = true
			w.cursor.GivenUp++
		default:
			it.next = next
		}
	}
	switch {
	case w.failing && r.attempt.Last:
		w.d.cfg.Slog.Warn("webhook event given up", "tenant", w.tenant, "webhook", w.id, "event", r.attempt.EventID, "events", len(r.items), "attempts", r.attempt.Number)
	case w.failing && r.attempt.Events > 0:
		w.pause = next
	}
	w.advance()
}

// backoff returns the pause after so many attempts, with up to 10 % jitter.
func (d *deliverer) backoff(tries int) time.Duration {
	pause := waiting.Delay(tries-1, d.cfg.Backoff, maxBackoff)
	return pause + time.Duration(rand.Int64N(int64(pause)/10+1))
}

// advance moves the cursor past finished events.
func (w *worker) advance() {
	for len(w.queue) > 0 && w.queue[0].done {
		w.cursor.At, w.dirty = w.queue[0].at, true
		w.queue = w.queue[1:]
	}
	for len(w.lives) > 0 && w.lives[0].done {
		w.cursor.Processes, w.dirty = w.lives[0].at, true
		w.lives = w.lives[1:]
	}
	if len(w.lives) == 0 {
		w.cursor.Processes = max(w.cursor.Processes, webhook.Through(w.reader.At))
	}
}

// wait returns how long nothing is due.
func (w *worker) wait() time.Duration {
	now := time.Now()
	wait := w.untilDue()
	if len(w.queue)+len(w.lives)+len(w.extra)+w.running == 0 {
		wait = min(wait, w.active.Add(renewEvery).Sub(now))
	}
	for _, it := range slices.Concat(w.queue, w.lives, w.extra) {
		if !it.done && !it.busy && it.next.After(now) {
			wait = min(wait, it.next.Sub(now))
		}
	}
	return max(0, wait)
}

// redelivered removes an event from the requested redeliveries.
func (w *worker) redelivered(ctx context.Context, it *item) error {
	w.extra = slices.DeleteFunc(w.extra, func(x *item) bool { return x == it })
	for {
		h, ok := w.d.cfg.View.Webhook(w.tenant, w.id)
		left := slices.DeleteFunc(slices.Clone(h.Redeliveries.Events), func(r webhook.Ref) bool { return r == it.ref })
		if !ok || len(left) == len(h.Redeliveries.Events) {
			return nil
		}
		_, err := w.d.cfg.Log.PutRedeliveries(ctx, w.tenant, w.id, &webhook.Redeliveries{Events: left, Rev: h.Redeliveries.Rev})
		if err != nil && !kind.Is(err, kind.Conflict) {
			return err
		}
		if err := w.d.cfg.View.Sync(ctx); err != nil {
			return err
		}
	}
}
