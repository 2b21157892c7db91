package deliver

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/lives"
	"github.com/millrace/millrace/events/webhook"
)

// windowOf returns the maximum number of events of each kind of a webhook in memory: a batch is read
// while another one is sent.
func windowOf(h *catalog.Hook) int { return max(window, 2*h.Batch) }

// fillLives reads the next events of processes into the window. It reports whether it has read all.
func (w *worker) fillLives(ctx context.Context, h *catalog.Hook) (all bool, err error) {
	for h.ReceivesProcesses() {
		free := (windowOf(h) - len(w.lives)) / 2 // a process may have started and ended
		if free <= 0 {
			return false, nil
		}
		found, err := w.d.lives.Next(ctx, &w.reader, wanted(h), free)
		for i := range found {
			w.addLife(h, &found[i])
		}
		if w.advance(); err != nil || len(found) < free {
			return true, err
		}
	}
	return false, nil
}

// addLife adds the events of a change that the webhook receives.
func (w *worker) addLife(h *catalog.Hook, c *lives.Change) {
	for _, e := range webhook.OfProcess(&c.Process, c.Rev, c.Started, c.Ended) {
		if e.Ref.Position > w.cursor.Processes && h.Receives(e.Type) && w.describe(&e) {
			w.lives = append(w.lives, &item{at: e.Ref.Position, ev: &e})
		}
	}
}

// describe adds to an event of a process what its sandbox is. It returns false if the sandbox
// belongs to a build, which has no events.
func (w *worker) describe(e *webhook.Event) bool {
	s, ok := w.d.cfg.View.Sandbox(e.Ref.Sandbox)
	if !ok {
		return true
	}
	e.SetSandbox(&s)
	return s.Request.Build == ""
}

// redeliverLife adds a requested redelivery of an event of a process.
func (w *worker) redeliverLife(ctx context.Context, ref webhook.Ref) error {
	it := &item{ref: ref, at: ref.Position, redelivery: true, done: true}
	w.extra = append(w.extra, it)
	if s, _, ok := w.d.cfg.View.Process(ref.Process); ok && s.Tenant == w.tenant {
		if e, ok := webhook.ProcessAt(&s, ref.Position); ok && w.describe(&e) {
			it.ev, it.done = &e, false
			return nil
		}
	}
	return w.redelivered(ctx, it) // its entry was removed
}

// launchBatch starts the attempt to send the next events as one request, unless one is running or a
// pause has not ended.
func (w *worker) launchBatch(ctx context.Context, h *catalog.Hook, now time.Time) {
	if w.batch || w.pause.After(now) {
		return
	}
	if w.limit >= h.Batch {
		w.limit = 0
	}
	items := fitting(nextBatch(w.queue, w.lives, cmp.Or(w.limit, h.Batch)))
	if len(items) == 0 {
		return
	}
	w.batch = true
	w.running++
	events := make([]*webhook.Event, len(items))
	for i, it := range items {
		it.busy, events[i] = true, it.ev
	}
	number := items[0].attempts + 1
	go func() {
		a := w.attempt(ctx, h, events, number)
		a.Events = len(events)
		w.results <- result{items, a} // has capacity for all results
	}()
}

// refusedBatch reports whether a receiver refused several events together: it may accept some of them.
func refusedBatch(a *webhook.Attempt) bool { return a.Events > 1 && webhook.Refuses(int(a.Status)) }

// nextBatch returns the first items of two queues that are not done, oldest first, at most most of
// them. Those of each queue stay in their order.
func nextBatch(a, b []*item, most int) []*item {
	open := func(all []*item) []*item {
		return slices.DeleteFunc(slices.Clone(all[:min(len(all), most)]), func(it *item) bool { return it.done || it.busy })
	}
	a, b = open(a), open(b)
	var out []*item
	for len(out) < most && len(a)+len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && !b[0].ev.Time.Before(a[0].ev.Time) {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return out
}

// maxBatchBytes limits the payloads of a batch, unless one event has more: receivers refuse bodies that are too
// large, and would refuse the same batch at each attempt.
const maxBatchBytes = 1 << 20

// fitting returns the first items whose payloads fit in a batch, at least one.
func fitting(items []*item) []*item {
	size := 0
	for i, it := range items {
		b, err := it.ev.Payload()
		if size += len(b); i > 0 && (size > maxBatchBytes || err != nil) {
			return items[:i]
		}
	}
	return items
}
