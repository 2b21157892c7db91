package hostd

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/sandbox"
)

// watch gives every sandbox that is placed here a box, and tells the boxes how
// their sandboxes' records go on.
func (h *host) watch(ctx context.Context) error {
	changed, stop := h.view.Changes()
	defer stop()
	var swept uint64
	var begun time.Time
	var owed time.Duration // rest, for looks
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
		// Every sandbox of the fleet changes the view. However busy it gets, looking
		// takes a small part of the time. A look now and then is free: the second is
		// mostly at the sandbox that the first saw before it was placed.
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
	watchShare  = 20                    // times as long as it looked watch rests
	watchCredit = 20 * time.Millisecond // of rest that may be owed
)

// mine reports whether a sandbox is this host's to work on.
func (h *host) mine(s *sandbox.State) bool { return s.Host == h.cfg.Name && !s.Over() }

// unopened reports whether a sandbox is this host's and has no box yet.
func (h *host) unopened(s *sandbox.State) bool { return h.mine(s) && h.box(s.ID) == nil }

// tell passes the newest states on to the boxes, also of sandboxes that others
// have ended.
func (h *host) tell() {
	for _, b := range h.all() {
		if s, ok := h.view.Sandbox(b.id); ok {
			b.tell(&s)
		}
	}
}

// open sets a box to work, unless its sandbox has one, and delivers the commands that
// waited for it.
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

// close forgets a box that has ended, and then says that it is gone.
func (h *host) close(b *box) {
	defer close(b.gone)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.boxes, b.id)
	if b.req.From != "" {
		h.ended.Store(true)
	}
}

// destroyAll ends every sandbox, as a clean end may ask for.
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

// causeHostStopped is why a sandbox ends whose host was told to end cleanly.
const causeHostStopped = "host_stopped"
