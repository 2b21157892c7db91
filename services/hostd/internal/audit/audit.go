package audit

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
)

// Config configures an Auditor. All fields but Checkpoint and Interval are required.
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
	// Complete gives the record of a process that ended the end that the catalog has.
	Complete func(context.Context, process.ID) error
	Spawn    func(what string, work func(ctx context.Context) error) // runs a function in the background
	Slog     *slog.Logger
}

// Auditor completes records whose end the log has lost.
type Auditor struct {
	cfg      Config
	verified fleet.Checkpoint // of Run
}

// New returns an auditor.
func New(cfg Config) *Auditor { return &Auditor{cfg: cfg, verified: cfg.Checkpoint} }

const (
	auditRetry = 5 * time.Second // until a failed audit is repeated
	interval   = time.Minute     // default of Config.Interval
)

// Run completes the records of this host's processes that ended and whose end the log has lost: at
// the start of a run, whenever servers may have been restarted, because what a damaged disk loses
// shows when they start, and when messages are missing that the stream had at the last checkpoint.
func (a *Auditor) Run(ctx context.Context) error {
	for {
		again := a.cfg.Log.Reconnected()
		now, err := a.once(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the run ends
		}
		if err != nil {
			a.cfg.Slog.Warn("check ends of records failed", "err", err)
			waiting.Sleep(ctx, auditRetry)
			continue
		}
		a.follow(ctx, again, now)
	}
}

// once reads the ends of the records that may have lost theirs since the last checkpoint, or of all if
// messages are missing that the stream had then. It returns a checkpoint of the time before; zero if an
// end is missing.
func (a *Auditor) once(ctx context.Context) (fleet.Checkpoint, error) {
	if err := a.cfg.View.Sync(ctx); err != nil {
		return fleet.Checkpoint{}, err
	}
	now, whole, err := a.cfg.Log.Checkpoint(ctx, a.cfg.Host, a.verified)
	if err != nil {
		return fleet.Checkpoint{}, err
	}
	since := time.Now().Add(-a.cfg.Log.Retention()) // older records are not kept
	if at := a.verified.At.Add(-justBefore); whole && at.After(since) {
		since = at
	}
	for some := range a.cfg.View.EndedOn(a.cfg.Host, since) {
		some = slices.DeleteFunc(some, func(s process.Summary) bool { return s.Last == 0 })
		err := a.cfg.Log.Incomplete(ctx, a.cfg.Host, some, func(s *process.Summary) {
			id := s.ID
			now = fleet.Checkpoint{}
			a.cfg.Spawn("process "+string(id), func(ctx context.Context) error { return a.cfg.Complete(ctx, id) })
		})
		if err != nil {
			return fleet.Checkpoint{}, err
		}
	}
	return now, nil
}

// follow advances the checkpoint until ctx ends, or another audit is due.
func (a *Auditor) follow(ctx context.Context, again <-chan struct{}, next fleet.Checkpoint) {
	tick := time.NewTicker(cmp.Or(a.cfg.Interval, interval))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-again:
			return
		case <-ctx.Done():
			return
		}
		now, whole, err := a.cfg.Log.Checkpoint(ctx, a.cfg.Host, next)
		if err != nil || !whole {
			return
		}
		// The ends of processes that ended before next were stored in the meantime, if not at once.
		a.verified = next
		a.cfg.Checkpointed(next)
		next = now
	}
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
