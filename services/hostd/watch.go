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
			h.open(newBox(h, &s))
		}
		h.unparkAll()
		h.tell()
		if n := h.view.Deletions(); n != swept || h.ended.Swap(false) {
			swept = n
			h.sweepSnapshots(true)
		}
		// Every sandbox of the fleet changes the view. However busy the fleet is, watch takes a
		// small part of the time. An occasional check is free: the second one mostly finds the
		// sandbox that the first saw before it was placed.
		owed += watchShare * time.Since(begun)
		if owed > watchCredit && !rest(ctx, owed-watchCredit) {
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
func (h *host) unopened(s *sandbox.State) bool { return h.mine(s) && h.box(s.ID) == nil }

// updateAll passes the newest states to the open sandboxes, including those that other services
// have ended.
func (h *host) tell() {
	for _, b := range h.all() {
		if s, ok := h.view.Sandbox(b.id); ok {
			b.tell(&s)
		}
	}
}

// open starts a sandbox, unless it is open, and delivers the commands that are parked for it.
func (h *host) open(b *box) {
	h.add(b)
	h.unpark(b.id)
}

func (h *host) add(b *box) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boxes[b.id] != nil {
		return
	}
	h.boxes[b.id] = b
	h.spawn("sandbox "+string(b.id), func() error {
		defer h.close(b)
		return b.run(h.life)
	})
}

// close removes a sandbox that has ended, and then closes gone.
func (h *host) close(b *box) {
	defer close(b.gone)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.boxes, b.id)
	if b.req.From != "" {
		h.ended.Store(true)
	}
}

// destroyAll ends every sandbox, for a clean exit.
func (h *host) destroyAll(ctx context.Context) error {
	boxes := h.all()
	for _, b := range boxes {
		_, err := h.view.ChangeSandbox(ctx, b.id, func(s sandbox.State) ([]sandbox.Body, error) {
			if s.Over() || s.Phase == sandbox.PhaseStopping {
				return nil, nil
			}
			return []sandbox.Body{sandbox.Stopping{Cause: causeHostStopped}}, nil
		})
		if err != nil {
			return err
		}
		if s, ok := h.view.Sandbox(b.id); ok {
			b.tell(&s)
		}
	}
	for _, b := range boxes {
		select {
		case <-b.gone:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// causeHostStopped is the cause of sandboxes that end with their host's clean exit.
const causeHostStopped = "host_stopped"
