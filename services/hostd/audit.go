package hostd

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
)

// auditRetry is how long a failed audit waits.
const auditRetry = 5 * time.Second

// auditor completes records whose end the log has lost.
type auditor struct {
	h *host
}

// run completes the records of this host's processes that ended and whose end the log
// has lost, at the start of a run and whenever servers may have been restarted: what a
// damaged disk loses shows when they start.
func (a *auditor) run(ctx context.Context) error {
	for {
		again := a.h.log.Reconnected()
		if err := a.once(ctx); err != nil && ctx.Err() == nil {
			a.h.slog.Warn("check ends of records failed", "err", err)
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
// copy of the whole catalogue would take much memory.
const auditBatch = 4096

func (a *auditor) once(ctx context.Context) error {
	if err := a.h.view.Sync(ctx); err != nil {
		return err
	}
	var some []process.Summary
	audit := func() error {
		err := a.h.log.Incomplete(ctx, a.h.cfg.Name, some, func(s *process.Summary) {
			id := s.ID
			a.h.spawn("process "+string(id), func() error { return a.complete(a.h.runCtx, id) })
		})
		some = nil
		return err
	}
	for _, s := range a.h.view.Sandboxes(func(*sandbox.State) bool { return true }) {
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
func (a *auditor) endedHere(id sandbox.ID) []process.Summary {
	kept := time.Now().Add(-a.h.log.Retention())
	return a.h.view.Processes(id, func(s *process.Summary) bool {
		return !s.Active() && s.Host == a.h.cfg.Name && s.Last > 0 && s.Ended.After(kept)
	})
}

// justBefore is more than a host leaves between the two writes of an end.
const justBefore = 5 * time.Minute

// completeAll completes the records of the processes that ended shortly before the previous
// run did, before the sandbox's own record gets its end. It retries until ctx ends.
func (sb *hostSandbox) completeAll(ctx context.Context) error {
	if !sb.adopted {
		return nil
	}
	all := sb.h.audits.endedHere(sb.id)
	var newest time.Time
	for i := range all {
		if all[i].Ended.After(newest) {
			newest = all[i].Ended
		}
	}
	all = slices.DeleteFunc(all, func(s process.Summary) bool {
		return s.Epoch >= sb.h.epoch || newest.Sub(s.Ended) > justBefore
	})
	for {
		var missing []process.ID
		err := sb.h.log.Incomplete(ctx, sb.h.cfg.Name, all, func(s *process.Summary) { missing = append(missing, s.ID) })
		for _, id := range missing {
			if err == nil {
				err = sb.h.audits.complete(ctx, id)
			}
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		sb.h.slog.Warn("check ends of records failed", "sandbox", sb.id, "err", err)
		waiting.Sleep(ctx, auditRetry)
	}
}

// complete gives the record of a process that ended the end that the catalogue has. A
// process that the sandbox's shim still has, or that another goroutine ends, is left to
// that one.
func (a *auditor) complete(ctx context.Context, id process.ID) error {
	sb := a.h.sandboxes.get(id.Sandbox())
	if sb != nil {
		select {
		case <-sb.session.ready:
		case <-sb.gone:
		case <-ctx.Done():
			return nil
		}
	}
	p := a.h.newProc(sb, id)
	if sb != nil && !sb.session.enlist(p) {
		return nil
	}
	p.lose(process.Exit{Cause: process.CauseShimLost})
	if err := p.endOrphan(ctx); !kind.Is(err, kind.Fenced) {
		return err
	}
	return nil
}

// enlist adds p to the processes unless it is one of them already.
func (ss *session) enlist(p *proc) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.procs[p.id.Token()] != nil {
		return false
	}
	ss.procs[p.id.Token()] = p
	return true
}
