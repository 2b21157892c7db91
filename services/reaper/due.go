package reaper

import (
	"time"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// end returns when a sandbox is due; zero: never. A sandbox that is not running yet must
// run in time. A paused sandbox has a limit instead of its deadline.
func end(s *sandbox.State) time.Time {
	switch s.Phase {
	case sandbox.PhaseRequested, sandbox.PhaseQueued, sandbox.PhasePlaced:
		if late := s.Request.RunBy; s.Deadline.IsZero() || !late.IsZero() && late.Before(s.Deadline) {
			return late
		}
		return s.Deadline
	case sandbox.PhaseRunning:
		return s.Deadline
	case sandbox.PhasePaused:
		return s.PausedSince.Add(maxPaused)
	}
	return time.Time{}
}

// maxPaused is how long a sandbox may be paused. It must be less than the age at which its
// record is removed.
const maxPaused = 28 * 24 * time.Hour

// expired reports whether the sandbox is due.
func expired(s *sandbox.State, now time.Time) bool {
	return expiredAt(end(s), now)
}

func expiredAt(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// dueNow returns the event for a sandbox that is due.
func dueNow(s *sandbox.State, now time.Time) sandbox.Body {
	files := s.Request.OnTimeout == sandbox.OnTimeoutPauseFiles
	if s.IsRunning() && s.Can.Pause && (files || s.Request.OnTimeout == sandbox.OnTimeoutPause) {
		return sandbox.Pausing{Cause: sandbox.CauseTimeout, Files: files}
	}
	if s.Begins() && !expiredAt(s.Deadline, now) {
		return sandbox.Stopping{Cause: sandbox.CauseLate}
	}
	return sandbox.Stopping{Cause: sandbox.CauseTimeout}
}

// agenda collects the sandboxes that are due and the time of the next one. A walk over all
// of them costs less than a heap that must follow a log in which every deadline may move,
// and it cannot become stale.
type agenda struct {
	now  time.Time
	due  []sandbox.ID
	next time.Time // zero: none is ahead
}

// visit considers one sandbox.
func (a *agenda) visit(s *sandbox.State) {
	at := end(s)
	switch {
	case at.IsZero():
	case expired(s, a.now):
		a.due = append(a.due, s.ID)
	case a.next.IsZero() || at.Before(a.next):
		a.next = at
	}
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
// catalog first and may die before it writes the record.
func suspect(s *process.Summary, newest time.Time) bool { // by the host's own clock; other clocks may differ
	return s.Active() || !reaped(s) && newest.Sub(s.Ended) <= justBefore
}

// reaped reports whether a reaper ended the process: it writes the record first, by its own
// clock, minutes after the host's last write.
func reaped(s *process.Summary) bool { return s.Exit != nil && s.Exit.Cause == process.CauseHostLost }

// justBefore is more than the delay between a host's two writes of an end.
const justBefore = 5 * time.Minute
