package audit

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
)

// auditRetry is how long a failed audit waits.
const auditRetry = 5 * time.Second

// Config configures an Auditor. All fields are required.
type Config struct {
	Host  string // name of the host
	Epoch uint64 // of this run
	Log   *events.Log
	View  *catalog.View

	// Complete gives the record of a process that ended the end that the catalog has.
	Complete func(context.Context, process.ID) error
	Spawn    func(what string, work func(ctx context.Context) error) // runs a function in the background
	Slog     *slog.Logger
}

// Auditor completes records whose end the log has lost.
type Auditor struct{ cfg Config }

// New returns an auditor.
func New(cfg Config) *Auditor { return &Auditor{cfg} }

// Run completes the records of this host's processes that ended and whose end the log
// has lost, at the start of a run and whenever servers may have been restarted: what a
// damaged disk loses shows when they start.
func (a *Auditor) Run(ctx context.Context) error {
	for {
		again := a.cfg.Log.Reconnected()
		if err := a.once(ctx); err != nil && ctx.Err() == nil {
			a.cfg.Slog.Warn("check ends of records failed", "err", err)
			if !waiting.Sleep(ctx, auditRetry) {
				return nil
			}
			continue
		}
		select {
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// auditBatch is the number of processes per audit, exceeded by at most those of one sandbox. A
// copy of the whole catalog would take much memory.
const auditBatch = 4096

func (a *Auditor) once(ctx context.Context) error {
	if err := a.cfg.View.Sync(ctx); err != nil {
		return err
	}
	var some []process.Summary
	audit := func() error {
		err := a.cfg.Log.Incomplete(ctx, a.cfg.Host, some, func(s *process.Summary) {
			id := s.ID
			a.cfg.Spawn("process "+string(id), func(ctx context.Context) error { return a.cfg.Complete(ctx, id) })
		})
		some = nil
		return err
	}
	for _, s := range a.cfg.View.Sandboxes(func(*sandbox.State) bool { return true }) {
		some = append(some, a.endedHere(s.ID)...)
		if len(some) < auditBatch {
			continue
		}
		if err := audit(); err != nil {
			return err
		}
	}
	return audit()
}

// endedHere returns a sandbox's processes that ended on this host and whose records are kept.
func (a *Auditor) endedHere(id sandbox.ID) []process.Summary {
	kept := time.Now().Add(-a.cfg.Log.Retention())
	return a.cfg.View.Processes(id, func(s *process.Summary) bool {
		return !s.Active() && s.Host == a.cfg.Host && s.Last > 0 && s.Ended.After(kept)
	})
}

// justBefore is more than a host leaves between the two writes of an end.
const justBefore = 5 * time.Minute

// CompleteAll completes the records of a sandbox's processes that ended shortly before the previous
// run did, before the sandbox's own record gets its end. It retries until ctx ends.
func (a *Auditor) CompleteAll(ctx context.Context, of sandbox.ID) error {
	all := a.endedHere(of)
	var newest time.Time
	for i := range all {
		if all[i].Ended.After(newest) {
			newest = all[i].Ended
		}
	}
	all = slices.DeleteFunc(all, func(s process.Summary) bool {
		return s.Epoch >= a.cfg.Epoch || newest.Sub(s.Ended) > justBefore
	})
	for {
		var missing []process.ID
		err := a.cfg.Log.Incomplete(ctx, a.cfg.Host, all, func(s *process.Summary) { missing = append(missing, s.ID) })
		for _, id := range missing {
			if err == nil {
				err = a.cfg.Complete(ctx, id)
			}
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		a.cfg.Slog.Warn("check ends of records failed", "sandbox", of, "err", err)
		waiting.Sleep(ctx, auditRetry)
	}
}
