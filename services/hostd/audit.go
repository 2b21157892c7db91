package hostd

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// auditRetry is how long a failed audit waits.
const auditRetry = 5 * time.Second

// audit completes the records of this host's processes that ended and whose end the log
// has lost, at the start of a run and whenever servers may have been restarted: what a
// damaged disk loses shows when they start.
func (h *host) audit(ctx context.Context) error {
	for {
		again := h.log.Reconnected()
		if err := h.auditOnce(ctx); err != nil && ctx.Err() == nil {
			h.slog.Warn("check ends of records failed", "err", err)
			if !rest(ctx, auditRetry) {
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

func (h *host) auditOnce(ctx context.Context) error {
	if err := h.view.Sync(ctx); err != nil {
		return err
	}
	kept := time.Now().Add(-h.log.Retention())
	ended := h.view.Processes("", func(s *process.Summary) bool {
		return !s.Active() && s.Host == h.cfg.Name && s.Last > 0 && s.Ended.After(kept)
	})
	return h.log.Short(ctx, h.cfg.Name, ended, func(s *process.Summary) {
		id := s.ID
		h.spawn("process "+string(id), func() error { return h.complete(h.life, id) })
	})
}

// complete gives the record of a process that ended the end that the catalogue has. A
// process that the sandbox's shim still has, or that another goroutine ends, is left to
// that one.
func (h *host) complete(ctx context.Context, id process.ID) error {
	b := h.box(id.Sandbox())
	if b != nil {
		select {
		case <-b.ready:
		case <-b.gone:
		case <-ctx.Done():
			return nil
		}
	}
	p := h.newProc(b, id)
	if !b.enlist(p) {
		return nil
	}
	p.lose(process.Exit{Cause: process.CauseShimLost})
	if err := p.mourn(ctx); !kind.Is(err, kind.Fenced) {
		return err
	}
	return nil
}

// enlist adds p to its sandbox's processes unless it is one of them already. Without a
// sandbox it reports true.
func (b *box) enlist(p *proc) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.procs[p.id.Token()] != nil {
		return false
	}
	b.procs[p.id.Token()] = p
	return true
}
