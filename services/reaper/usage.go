package reaper

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/meter"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/usage"
	"github.com/millrace/millrace/services/reaper/internal/tokens"
)

// usagePart is how many times rarer than passes the usage is checked.
const usagePart = 5

// meter ends the usage of sandboxes whose hosts did not, until ctx ends.
func (r *reaper) meter(ctx context.Context) {
	m := r.cfg.Log.Meter()
	if err := m.Start(ctx); err != nil {
		r.warn(ctx, "open usage failed", "", err)
		return
	}
	t := time.NewTicker(usagePart * r.cfg.Tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			r.endUsage(ctx, m)
		}
	}
}

// tokens counts what agents report until ctx ends.
func (r *reaper) tokens(ctx context.Context) {
	tokens.New(tokens.Config{Log: r.cfg.Log, View: r.view, Slog: r.cfg.Slog, Interval: r.cfg.Tick}).Run(ctx)
}

// endUsage ends the usage of sandboxes that have ended. A host does that before it ends the record
// of its sandbox, so only hosts that are lost leave something. Each change reads the log, so the
// views need not be up to date.
func (r *reaper) endUsage(ctx context.Context, m *meter.Store) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	left := r.view.Sandboxes(func(s *sandbox.State) bool {
		if !s.Over() || s.Started.IsZero() || s.Request.Build != "" {
			return false
		}
		f, ok := m.Fact(s.Tenant, string(s.ID))
		return !ok || !f.Over()
	})
	for i := range left {
		s := &left[i]
		r.endFact(ctx, m, s.Tenant, string(s.ID), func(f usage.Fact, ok bool) (usage.Fact, bool) {
			if !ok {
				f = usage.New(s.Tenant, string(s.ID), usage.Sandbox, s.Started)
			}
			return f.End(s.Ended, true), true
		})
	}
	r.endForgotten(ctx, m)
}

// endForgotten ends the usage of sandboxes whose records were removed, and of conversations all of whose
// sandboxes' records were.
func (r *reaper) endForgotten(ctx context.Context, m *meter.Store) {
	conversations := tokens.Conversations(r.view)
	forgotten := func(f *usage.Fact) bool {
		if f.Kind == usage.Conversation {
			return !conversations[f.ID]
		}
		_, ok := r.view.Sandbox(sandbox.ID(f.ID))
		return !ok
	}
	synced := false
	for _, f := range m.Open() {
		if !forgotten(&f) {
			continue
		}
		if !synced { // the view may have been behind
			if err := r.view.Sync(ctx); err != nil {
				r.warn(ctx, "sync view failed", "", err)
				return
			}
			synced, conversations = true, tokens.Conversations(r.view)
		}
		if forgotten(&f) {
			r.endFact(ctx, m, f.Tenant, f.ID, func(f usage.Fact, ok bool) (usage.Fact, bool) {
				at := f.Started
				if f.Measured.After(at) {
					at = f.Measured
				}
				return f.End(at, f.Kind == usage.Sandbox), ok
			})
		}
	}
}

// endFact stores what end makes of a fact, unless it has ended.
func (r *reaper) endFact(ctx context.Context, m *meter.Store, tenant, id string, end func(f usage.Fact, ok bool) (usage.Fact, bool)) {
	_, err := m.Change(ctx, tenant, id, func(f usage.Fact, ok bool) (usage.Fact, bool) {
		if f.Over() {
			return f, false
		}
		return end(f, ok)
	})
	if err != nil {
		r.warn(ctx, "end usage failed", id, err)
	}
}
