package sandboxes

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/session"
)

// park keeps a command for a sandbox of this host that is not adopted yet, and reports
// whether it did so. Commands for the sandboxes that are adopted need not wait for the
// others: to attach to a sandbox may take long.
//
// Input beyond session.MaxQueuedBytes is refused.
func (set *Set) park(c command.Command) bool {
	if !set.adopting() {
		return false
	}
	id := c.Process.Sandbox()
	s, known := set.cfg.View.Sandbox(id) // not under mu: the view calls [Set.unopened]
	set.mu.Lock()
	queue, waits := set.parked[id]
	if !waits && (set.parked == nil || set.byID[id] != nil || !known || !set.mine(&s)) {
		set.mu.Unlock()
		return false
	}
	in, _ := c.Body.(command.Stdin)
	full := len(in.Data) > 0 && set.parkedBytes+len(in.Data) > session.MaxQueuedBytes
	if !full {
		set.parkedBytes += len(in.Data)
		set.parked[id] = append(queue, c)
	}
	set.mu.Unlock()
	if full {
		set.cfg.Commands.Refuse(c, kind.New(kind.Exhausted, "command", c.ID, "the host is starting and keeps no more input"))
	}
	return true
}

func (set *Set) adopting() bool {
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.parked != nil
}

// unpark delivers the commands that were parked for a sandbox, in their order. Commands
// that arrive meanwhile are parked behind them. At most one goroutine may call it for a
// sandbox at a time.
func (set *Set) unpark(id sandbox.ID) {
	for {
		set.mu.Lock()
		queue := set.parked[id]
		if len(queue) == 0 {
			delete(set.parked, id)
			set.mu.Unlock()
			return
		}
		set.parked[id] = nil // the key stays: commands that arrive now are parked
		for _, c := range queue {
			if in, ok := c.Body.(command.Stdin); ok {
				set.parkedBytes -= len(in.Data)
			}
		}
		set.mu.Unlock()
		for _, c := range queue {
			set.deliver(c)
		}
	}
}

// unparkAll delivers all parked commands and ends the parking.
func (set *Set) unparkAll() {
	for {
		set.mu.Lock()
		ids := slices.Collect(maps.Keys(set.parked))
		if len(ids) == 0 {
			set.parked = nil
			set.mu.Unlock()
			return
		}
		set.mu.Unlock()
		for _, id := range ids {
			set.unpark(id)
		}
	}
}
