package audit

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
)

// Config configures an Auditor. All fields but Checkpoint, Interval and Sweep are required.
type Config struct {
	Host  string // name of the host
	Epoch uint64 // of this run
	Log   *events.Log
	View  *catalog.View

	// Checkpoint is that of the host's previous run; zero: none.
	Checkpoint fleet.Checkpoint
	// Checkpointed is called with each checkpoint up to which the log has the ends.
	Checkpointed func(fleet.Checkpoint)
	Interval     time.Duration // between two comparisons with a checkpoint; 0: a minute
	Sweep        time.Duration // until the first check of all ends; 0: ten minutes
	// Complete gives the record of a process that ended the end that the catalog has.
	Complete func(context.Context, process.ID) error
	Spawn    func(what string, work func(ctx context.Context) error) // runs a function in the background
	Slog     *slog.Logger
}

// Auditor completes records whose end the log has lost.
type Auditor struct {
	cfg        Config
	completing sync.Map      // by process.ID: those passed to Complete that has not returned
	through    atomic.Uint64 // Rev of the last checkpoint of this run

	// The following are of Run.
	verified fleet.Checkpoint
	seen     uint64 // stream sequence of the catalog at the last pass
	// recent is whether ends shortly before the checkpoint must be read, too.
	recent bool
}

// New returns an auditor.
func New(cfg Config) *Auditor { return &Auditor{cfg: cfg, verified: cfg.Checkpoint} }

const (
	auditRetry = 5 * time.Second // until a failed audit is repeated
	interval   = time.Minute     // default of Config.Interval

	firstSweep = 10 * time.Minute // default of Config.Sweep
	nextSweep  = 24 * time.Hour   // between two checks of all ends
	sweepBatch = 1000             // ends per second of a check of all
)

// Run completes the records of this host's processes that ended and whose end the log has lost: at
// the start of a run, whenever servers may have been restarted, because what a damaged disk loses
// shows when they start, and when messages are missing that the stream had at the last checkpoint.
// Each interval it advances the checkpoint. Once a day it slowly checks all ends, since damage to a message
// shows only when that message is read.
func (a *Auditor) Run(ctx context.Context) error {
	var sweeping sync.WaitGroup
	defer sweeping.Wait()
	sweeping.Go(func() { a.sweep(ctx) })
	for restarted := true; ; {
		again := a.cfg.Log.Reconnected()
		err := a.pass(ctx, restarted)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			a.cfg.Slog.Warn("check ends of records failed", "err", err)
			waiting.Sleep(ctx, auditRetry)
			restarted = true
			continue
		}
		restarted = a.wait(ctx, again)
	}
}

// wait waits for the next pass, and reports whether servers may have been restarted.
func (a *Auditor) wait(ctx context.Context, again <-chan struct{}) bool {
	t := time.NewTimer(cmp.Or(a.cfg.Interval, interval))
	defer t.Stop()
	select {
	case <-t.C:
		return false
	case <-again:
		return true
	case <-ctx.Done():
		return false
	}
}

// pass reads the ends of the records that may have lost theirs since the last checkpoint, or of all if
// messages are missing that the stream had then. If no end is missing, there is a new checkpoint. It covers
// only the entries that the view had at the previous pass: the end of a newer one may be about to be stored,
// since a host writes an entry and the end of its record at the same time.
func (a *Auditor) pass(ctx context.Context, restarted bool) error {
	if err := a.cfg.View.Sync(ctx); err != nil {
		return err
	}
	rev := a.cfg.View.ProcessesRev()
	settled := min(cmp.Or(a.seen, rev), rev)
	a.seen = rev
	before, whole, err := a.cfg.Log.Checkpoint(ctx, a.cfg.Host, a.verified)
	if err != nil {
		return err
	}
	whole = whole && a.verified.Rev <= rev // else the catalog has lost entries
	a.recent = a.recent || restarted
	span := catalog.EndedSpan{UpTo: settled}
	if whole {
		span.After = a.verified.Rev
		if a.recent {
			span.Since = a.verified.At.Add(-fleet.JustBefore)
		}
	}
	complete, err := a.check(ctx, span)
	if err != nil {
		return err
	}
	if restarted || !whole {
		if _, err := a.check(ctx, catalog.EndedSpan{After: settled}); err != nil {
			return err
		}
	}
	if !complete {
		return nil
	}
	return a.advance(ctx, before, settled)
}

// advance makes a checkpoint of now if the stream still has what it had before the ends of the entries up to
// a stream sequence were read.
func (a *Auditor) advance(ctx context.Context, before fleet.Checkpoint, rev uint64) error {
	now, whole, err := a.cfg.Log.Checkpoint(ctx, a.cfg.Host, before)
	if err != nil || !whole {
		return err
	}
	now.Rev = rev
	a.verified, a.recent = now, false
	a.through.Store(rev)
	a.cfg.Checkpointed(now)
	return nil
}

// check reads the ends of the records of processes in a span, and completes those that have none. It reports
// whether all have one.
func (a *Auditor) check(ctx context.Context, span catalog.EndedSpan) (complete bool, err error) {
	complete = true
	for some := range a.cfg.View.EndedOn(a.cfg.Host, span) {
		missing, err := a.completeOf(ctx, some)
		if err != nil {
			return false, err
		}
		complete = complete && missing == 0
	}
	return complete, nil
}

// completeOf completes the records of some processes that ended, and returns how many had no end.
func (a *Auditor) completeOf(ctx context.Context, some []process.Summary) (missing int, err error) {
	kept := time.Now().Add(-a.cfg.Log.Retention()) // older records are not
	some = slices.DeleteFunc(some, func(s process.Summary) bool { return s.Last == 0 || s.Ended.Before(kept) })
	err = a.cfg.Log.Incomplete(ctx, a.cfg.Host, some, func(s *process.Summary) {
		missing++
		a.complete(s.ID)
	})
	return missing, err
}

// complete completes a record in the background, unless that already happens.
func (a *Auditor) complete(id process.ID) {
	if _, is := a.completing.LoadOrStore(id, true); is {
		return
	}
	a.cfg.Spawn("process "+string(id), func(ctx context.Context) error {
		defer a.completing.Delete(id)
		return a.cfg.Complete(ctx, id)
	})
}

// sweep reads all ends that the checkpoint covers, slowly, from time to time until ctx ends.
func (a *Auditor) sweep(ctx context.Context) {
	first := cmp.Or(a.cfg.Sweep, firstSweep)
	for wait := first; waiting.Sleep(ctx, wait); {
		wait = first // until there is a checkpoint, Run reads all ends
		if rev := a.through.Load(); rev > 0 {
			wait = nextSweep
			if err := a.checkAll(ctx, rev); err != nil && ctx.Err() == nil {
				a.cfg.Slog.Warn("check ends of all records failed", "err", err)
				wait = first
			}
		}
	}
}

// checkAll reads the ends of the entries up to a stream sequence, at most sweepBatch per second.
func (a *Auditor) checkAll(ctx context.Context, rev uint64) error {
	for all := range a.cfg.View.EndedOn(a.cfg.Host, catalog.EndedSpan{UpTo: rev}) {
		for some := range slices.Chunk(all, sweepBatch) {
			if _, err := a.completeOf(ctx, some); err != nil {
				return err
			}
			if !waiting.Sleep(ctx, time.Second) {
				return ctx.Err()
			}
		}
	}
	return nil
}

// endedHere returns a sandbox's processes that ended on this host and whose records are kept.
func (a *Auditor) endedHere(id sandbox.ID) []process.Summary {
	kept := time.Now().Add(-a.cfg.Log.Retention())
	return a.cfg.View.Processes(id, func(s *process.Summary) bool {
		return !s.Active() && s.Host == a.cfg.Host && s.Last > 0 && s.Ended.After(kept)
	})
}

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
		return s.Epoch >= a.cfg.Epoch || newest.Sub(s.Ended) > fleet.JustBefore
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
