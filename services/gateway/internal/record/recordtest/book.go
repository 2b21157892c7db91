// Package recordtest provides an in-memory gateway for tests of surfaces: the test writes the
// records, and the calls of the surface are logged.
package recordtest

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Tenant owns all sandboxes and records.
const Tenant = "t1"

// Gateway is the in-memory gateway. Its methods may be called concurrently.
type Gateway struct {
	OnStart func(id process.ID, spec process.Spec) // called in Start, before it returns
	OnWait  func()                                 // called each time a reader has no further event and will wait

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced at every change
	sandboxes []sandbox.State
	records   map[process.ID]*processRecord
	keys      map[string]process.ID
	Calls     []string // "signal 15 <id>", "stdin <id> data eof=true"; not synchronized
}

type processRecord struct {
	events []process.Event
	first  process.Seq // the first retained event
	sum    process.Summary
	hash   []byte
}

// New returns a gateway with running sandboxes of those names.
func New(sandboxes ...sandbox.ID) *Gateway {
	b := &Gateway{changed: make(chan struct{}), records: map[process.ID]*processRecord{}, keys: map[string]process.ID{}}
	for _, id := range sandboxes {
		b.AddSandbox(string(id))
	}
	return b
}

// AddSandbox adds a running sandbox.
func (b *Gateway) AddSandbox(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sandboxes = append(b.sandboxes, sandbox.State{ID: sandbox.ID(id), Tenant: Tenant, Phase: sandbox.PhaseRunning})
}

// Epoch is the time of every event of a Book.
func Epoch() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// Append appends events to a record, and creates it if it does not exist.
func (b *Gateway) Append(id process.ID, bodies ...process.Body) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.of(id)
	for _, body := range bodies {
		r.events = append(r.events, process.Event{Seq: process.Seq(len(r.events)) + 1, Time: Epoch(), Body: body})
		switch f := body.(type) {
		case process.Accepted:
			r.sum.Spec = f.Spec.Public()
		case process.Started:
			r.sum.PID, r.sum.Started = f.PID, Epoch()
		case process.Finished:
			r.sum.Exit, r.sum.Ended = &f.Exit, Epoch()
		}
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// Forget removes the events before first, as retention does.
func (b *Gateway) Forget(id process.ID, first process.Seq) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(id).first = first
}

func (b *Gateway) of(id process.ID) *processRecord {
	r := b.records[id]
	if r == nil {
		r = &processRecord{first: 1, sum: process.Summary{ID: id, Tenant: Tenant, Host: "h1"}}
		b.records[id] = r
	}
	return r
}

func (b *Gateway) find(p core.Principal, id process.ID) (*processRecord, error) {
	if r := b.records[id]; r != nil && p.Tenant == Tenant && (p.Sandbox == "" || p.Sandbox == id.Sandbox()) {
		return r, nil
	}
	return nil, kind.New(kind.NotFound, "find process", string(id), "process not found")
}

// Process implements record.Records.
func (b *Gateway) Process(_ context.Context, p core.Principal, id process.ID) (process.Summary, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, err := b.find(p, id)
	if err != nil {
		return process.Summary{}, err
	}
	return r.sum, nil
}

// Tail implements record.Records.
func (b *Gateway) Tail(_ context.Context, p core.Principal, id process.ID) (record.Tail, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, err := b.find(p, id)
	if err != nil {
		return record.Tail{}, err
	}
	if len(r.events) < int(r.first) {
		return record.Tail{}, kind.New(kind.NotFound, "read", string(id), "the process has no record")
	}
	tip := record.Tail{Last: process.Seq(len(r.events))}
	if f, ok := r.events[len(r.events)-1].Body.(process.Finished); ok {
		tip.Finished = &f
	}
	return tip, nil
}

// Read implements record.Records.
func (b *Gateway) Read(_ context.Context, p core.Principal, id process.ID, after process.Seq) (stream.Source, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.find(p, id); err != nil {
		return nil, err
	}
	return &reader{book: b, id: id, at: after}, nil
}

// Processes is like [procs.Procs.Processes].
func (b *Gateway) Processes(_ context.Context, p core.Principal, sbx sandbox.ID, keep func(*process.Summary) bool) ([]process.Summary, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []process.Summary
	for id, r := range b.records {
		if p.Tenant == Tenant && (sbx == "" || id.Sandbox() == sbx) && keep(&r.sum) {
			out = append(out, r.sum)
		}
	}
	slices.SortFunc(out, func(a, b process.Summary) int { return int(a.PID) - int(b.PID) })
	return out, nil
}

// ActiveProcesses is like [procs.Procs.ActiveProcesses].
func (b *Gateway) ActiveProcesses(ctx context.Context, p core.Principal, sbx sandbox.ID, keep func(*process.Summary) bool) ([]process.Summary, error) {
	return b.Processes(ctx, p, sbx, func(s *process.Summary) bool { return s.Active() && keep(s) })
}

// ProcessPage is like [procs.Procs.ProcessPage]; the newest process has the highest pid.
func (b *Gateway) ProcessPage(ctx context.Context, p core.Principal, q process.Query) (page []process.Summary, next process.ListCursor, err error) {
	all, err := b.Processes(ctx, p, q.Sandbox, func(s *process.Summary) bool { return (!q.Active || s.Active()) && q.Keep(s) })
	slices.Reverse(all)
	if i := slices.IndexFunc(all, func(s process.Summary) bool { return s.ID == q.After.ID }); i >= 0 {
		all = all[i+1:]
	}
	if len(all) > q.Limit {
		all = all[:q.Limit]
		next = process.ListCursor{At: int64(q.Limit), ID: all[q.Limit-1].ID}
	}
	return all, next, err
}

// reader is a Source with two events per batch.
type reader struct {
	book *Gateway
	id   process.ID
	at   process.Seq
}

func (r *reader) After() process.Seq { return r.at }
func (r *reader) Close()             {}

func (r *reader) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	var quiet <-chan time.Time
	if idle > 0 {
		t := time.NewTimer(idle)
		defer t.Stop()
		quiet = t.C
	}
	for {
		batch, wait, err := r.step()
		if err != nil || len(batch) > 0 {
			return batch, err
		}
		if r.book.OnWait != nil {
			r.book.OnWait()
		}
		select {
		case <-wait:
		case <-quiet:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (r *reader) step() ([]process.Event, <-chan struct{}, error) {
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	rec := r.book.records[r.id]
	if r.at+1 < rec.first {
		return nil, nil, kind.New(kind.Gone, "read", string(r.id), "it fell out of retention")
	}
	if r.at < process.Seq(len(rec.events)) {
		batch := rec.events[r.at:min(int(r.at)+2, len(rec.events))]
		r.at += process.Seq(len(batch))
		return slices.Clone(batch), nil, nil
	}
	if rec.sum.Exit != nil {
		return nil, nil, io.EOF
	}
	return nil, r.book.changed, nil
}
