package hostd

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// park keeps a command for a sandbox of this host that is not adopted yet, and reports
// whether it did so. Commands for the sandboxes that are adopted need not wait for the
// others: to attach to a sandbox may take long.
//
// Input beyond maxQueuedBytes is refused.
func (h *host) park(c events.Command) bool {
	if !h.adopting() {
		return false
	}
	id := c.Process.Sandbox()
	s, known := h.view.Sandbox(id) // not under mu: the view calls [host.unopened]
	h.mu.Lock()
	queue, waits := h.parked[id]
	if !waits && (h.parked == nil || h.sandboxes[id] != nil || !known || !h.mine(&s)) {
		h.mu.Unlock()
		return false
	}
	in, _ := c.Body.(events.Stdin)
	full := len(in.Data) > 0 && h.parkedBytes+len(in.Data) > maxQueuedBytes
	if !full {
		h.parkedBytes += len(in.Data)
		h.parked[id] = append(queue, c)
	}
	h.mu.Unlock()
	if full {
		h.refuse(c, kind.New(kind.Exhausted, "command", c.ID, "the host is starting and keeps no more input"))
	}
	return true
}

func (h *host) adopting() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.parked != nil
}

// unpark delivers the commands that were parked for a sandbox, in their order. Commands
// that arrive meanwhile are parked behind them. At most one goroutine may call it for a
// sandbox at a time.
func (h *host) unpark(id sandbox.ID) {
	for {
		h.mu.Lock()
		queue := h.parked[id]
		if len(queue) == 0 {
			delete(h.parked, id)
			h.mu.Unlock()
			return
		}
		h.parked[id] = nil // the key stays: commands that arrive now are parked
		for _, c := range queue {
			if in, ok := c.Body.(events.Stdin); ok {
				h.parkedBytes -= len(in.Data)
			}
		}
		h.mu.Unlock()
		for _, c := range queue {
			h.deliver(c)
		}
	}
}

// unparkAll delivers all parked commands and ends the parking.
func (h *host) unparkAll() {
	for {
		h.mu.Lock()
		ids := slices.Collect(maps.Keys(h.parked))
		if len(ids) == 0 {
			h.parked = nil
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		for _, id := range ids {
			h.unpark(id)
		}
	}
}
