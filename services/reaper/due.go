package reaper

import (
	"slices"
	"time"

	"github.com/millrace/millrace/events/due"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// agenda collects the sandboxes that are due and the time of the next one. A walk over all
// of them costs less than a heap that must follow a log in which every deadline may move,
// and it cannot become stale.
type agenda struct {
	now   time.Time
	grace bool // sandboxes with an idle timeout do not become idle yet
	due   []sandbox.ID
	next  time.Time // zero: none is ahead
}

// visit considers one sandbox.
func (a *agenda) visit(s *sandbox.State) {
	actions, next := due.Of(s, nil, a.now)
	if len(a.allowed(s, actions)) > 0 {
		a.due = append(a.due, s.ID)
	}
	if !next.IsZero() && (a.next.IsZero() || next.Before(a.next)) {
		a.next = next
	}
}

// allowed returns the actions without that on an idle sandbox during the grace period. Gateways move the
// deadlines of sandboxes in use, and cannot while the log is unreachable.
func (a *agenda) allowed(s *sandbox.State, actions []due.Action) []due.Action {
	if !a.grace || s.Request.Idle == 0 {
		return actions
	}
	return slices.DeleteFunc(actions, func(x due.Action) bool { return x.Cause == due.Idle && s.IsRunning() })
}

// events returns the events for what is due in a sandbox.
func (a *agenda) events(s *sandbox.State, now time.Time) (events []sandbox.Body) {
	actions, _ := due.Of(s, nil, now)
	actions = a.allowed(s, actions)
	for i := range actions {
		events = append(events, actions[i].Event)
	}
	return events
}

// wait returns how long no sandbox is due, at most limit.
func (a *agenda) wait(most time.Duration) time.Duration {
	if a.next.IsZero() {
		return most
	}
	return min(most, max(0, a.next.Sub(a.now)))
}

// orphaned reports whether the sandbox's host will never end it.
func orphaned(s *sandbox.State, dead map[string]fleet.Host) bool {
	h, ok := dead[s.Host]
	return ok && !s.Over() && s.Epoch <= h.Epoch
}

// suspect reports whether the record of a dead host's process may lack its end: the process
// runs, or it ended shortly before the newest end on that host. A host writes an end to the
// catalog and the record at the same time and may die before it has written both.
func suspect(s *process.Summary, newest time.Time) bool { // by the host's own clock; other clocks may differ
	return s.Active() || !reaped(s) && newest.Sub(s.Ended) <= fleet.JustBefore
}

// reaped reports whether a reaper ended the process: it writes the record first, by its own
// clock, minutes after the host's last write.
func reaped(s *process.Summary) bool { return s.Exit != nil && s.Exit.Cause == process.CauseHostLost }
