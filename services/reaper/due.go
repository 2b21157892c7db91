package reaper

import (
	"time"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// end is when something is to be done about the sandbox; zero: never. A sandbox that has
// not run yet must run in time. One that is paused has its time again, and a limit.
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
		return s.Still.Add(mostPaused)
	}
	return time.Time{}
}

// mostPaused is how long a sandbox may be paused. It is less than the age at
// which its record is forgotten.
const mostPaused = 28 * 24 * time.Hour

// expired reports whether the sandbox's time ran out.
func expired(s *sandbox.State, now time.Time) bool {
	return expiredAt(end(s), now)
}

func expiredAt(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// dueNow is what is to become of a sandbox whose time ran out.
func dueNow(s *sandbox.State, now time.Time) sandbox.Body {
	files := s.Request.OnTimeout == sandbox.OnTimeoutPauseFiles
	if s.Live() && s.Can.Pause && (files || s.Request.OnTimeout == sandbox.OnTimeoutPause) {
		return sandbox.Pausing{Cause: sandbox.CauseTimeout, Files: files}
	}
	if s.Begins() && !expiredAt(s.Deadline, now) {
		return sandbox.Stopping{Cause: sandbox.CauseLate}
	}
	return sandbox.Stopping{Cause: sandbox.CauseTimeout}
}

// agenda collects which sandboxes are due and when the next one is. One walk
// over all of them costs less than keeping a heap true to a log in which every
// deadline may move, and has nothing that can go stale.
type agenda struct {
	now  time.Time
	due  []sandbox.ID
	next time.Time // zero: nothing is ahead
}

// visit notes one sandbox.
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

// wait is how long nothing is due, at most most.
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

// suspect reports whether the record of a process of a dead host may lack its end: it
// runs, or it ended just before the newest end of that host's, since a host notes an end in
// the catalogue first and dies between the two writes.
func suspect(s *process.Summary, newest time.Time) bool { // by the host's own clock: others may differ from it
	return s.Active() || !reaped(s) && newest.Sub(s.Ended) <= justBefore
}

// reaped reports whether a reaper ended the process: its record first, and by its own
// clock, minutes after all that the host did.
func reaped(s *process.Summary) bool { return s.Exit != nil && s.Exit.Cause == process.CauseHostLost }

// justBefore is more than a host leaves between the two writes of an end.
const justBefore = 5 * time.Minute
