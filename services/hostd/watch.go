package hostd

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/sandbox"
)

// watch opens every sandbox that is placed here, and passes updates of their records to the open
// sandboxes.
func (h *host) watch(ctx context.Context) error {
	changed, stop := h.view.Changes()
	defer stop()
	var swept uint64
	var begun time.Time
	var owed time.Duration // rest owed for checks
	for {
		owed = max(0, owed-time.Since(begun))
		begun = time.Now()
		for _, s := range h.view.Sandboxes(h.unopened) {
			h.open(newSandbox(h, &s))
		}
		h.unparkAll()
		h.updateAll()
		if n := h.view.Deletions(); n != swept || h.ended.Swap(false) {
			swept = n
			h.snapshots.Sweep(true)
		}
		// Every sandbox of the fleet changes the view. However busy the fleet is, watch takes a
		// small part of the time. An occasional check is free: the second one mostly finds the
		// sandbox that the first saw before it was placed.
		owed += watchShare * time.Since(begun)
		if owed > watchCredit && !sleep(ctx, owed-watchCredit) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

const (
	watchShare  = 20                    // rest after a check, as a multiple of its duration
	watchCredit = 20 * time.Millisecond // rest that may be owed
)

// mine reports whether a sandbox is this host's and has not ended.
func (h *host) mine(s *sandbox.State) bool { return s.Host == h.cfg.Name && !s.Over() }

// unopened reports whether a sandbox is this host's and not open yet.
func (h *host) unopened(s *sandbox.State) bool { return h.mine(s) && h.sandbox(s.ID) == nil }

// updateAll passes the newest states to the open sandboxes, including those that other services
// have ended.
func (h *host) updateAll() {
	for _, sb := range h.all() {
		if s, ok := h.view.Sandbox(sb.id); ok {
			sb.setDesired(&s)
		}
	}
}

// open starts a sandbox, unless it is open, and delivers the commands that are parked for it.
func (h *host) open(sb *hostSandbox) {
	h.add(sb)
	h.unpark(sb.id)
}

func (h *host) add(sb *hostSandbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sandboxes[sb.id] != nil {
		return
	}
	h.sandboxes[sb.id] = sb
	h.spawn("sandbox "+string(sb.id), func() error {
		defer h.close(sb)
		return sb.run(h.runCtx)
	})
}

// close removes a sandbox that has ended, and then closes gone.
func (h *host) close(sb *hostSandbox) {
	defer close(sb.gone)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sandboxes, sb.id)
	if sb.req.From != "" {
		h.ended.Store(true)
	}
}

// destroyAll ends every sandbox, for a clean exit.
func (h *host) destroyAll(ctx context.Context) error {
	sandboxes := h.all()
	for _, sb := range sandboxes {
		_, err := h.view.ChangeSandbox(ctx, sb.id, func(s sandbox.State) ([]sandbox.Body, error) {
			if s.Over() || s.Phase == sandbox.PhaseStopping {
				return nil, nil
			}
			return []sandbox.Body{sandbox.Stopping{Cause: causeHostStopped}}, nil
		})
		if err != nil {
			return err
		}
		if s, ok := h.view.Sandbox(sb.id); ok {
			sb.setDesired(&s)
		}
	}
	for _, sb := range sandboxes {
		select {
		case <-sb.gone:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// causeHostStopped is the cause of sandboxes that end with their host's clean exit.
const causeHostStopped = "host_stopped"
