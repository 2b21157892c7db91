package due

import (
	"time"

	"github.com/millrace/millrace/events/attachment"
	"github.com/millrace/millrace/events/sandbox"
)

// Cause is why something happens to a sandbox.
type Cause int

// The causes, in the order of their precedence.
const (
	HardEnd Cause = iota + 1
	Warning
	Idle
	Detached
)

// Action is what happens to a sandbox, or to a session in it.
type Action struct {
	Cause   Cause
	At      time.Time
	Event   sandbox.Body       // for the record of the sandbox; nil with Detached
	Session attachment.Session // of Detached
	// Blocked reports that what belongs to the session cannot be ended before the sandbox is
	// resumed.
	Blocked bool
}

// Session is a session in a sandbox, and what is known about the gateway that has its client.
type Session struct {
	attachment.Session
	Holder attachment.Holder
}

const (
	// MaxPaused is how long a sandbox may be paused. It must be less than the age at which its
	// record is removed.
	MaxPaused = 28 * 24 * time.Hour
	// endTimeout is how long a gateway may take to end what belongs to a session, before another
	// one repeats it.
	endTimeout = 30 * time.Second
)

// Of returns what is due in a sandbox at now, in the order in which it happens, and when the
// next action is due: zero if none is.
func Of(s *sandbox.State, sessions []Session, now time.Time) (due []Action, next time.Time) {
	p := plan{now: now}
	if !s.Over() && s.Phase != sandbox.PhaseStopping {
		p.sandbox(s)
	}
	for i := range sessions {
		p.session(s, &sessions[i])
	}
	return p.due, p.next
}

// plan collects actions.
type plan struct {
	now  time.Time
	due  []Action
	next time.Time
}

// reached reports whether a time has come. Otherwise it remembers the earliest one.
func (p *plan) reached(at time.Time) bool {
	switch {
	case at.IsZero():
	case !at.After(p.now):
		return true
	case p.next.IsZero() || at.Before(p.next):
		p.next = at
	}
	return false
}

// sandbox adds the actions that change the sandbox.
func (p *plan) sandbox(s *sandbox.State) {
	end := s.Request.HardEnd
	if p.reached(end) {
		p.due = append(p.due, Action{Cause: HardEnd, At: end, Event: sandbox.Stopping{Cause: sandbox.CauseHardEnd}})
		return
	}
	if at := warning(s); p.reached(at) {
		p.due = append(p.due, Action{Cause: Warning, At: at, Event: sandbox.Warned{HardEnd: end}})
	}
	if at := idle(s); p.reached(at) {
		p.due = append(p.due, Action{Cause: Idle, At: at, Event: afterIdle(s, p.now)})
	}
}

// warning returns when the sandbox is warned of its hard end; zero: never, or it has been.
func warning(s *sandbox.State) time.Time {
	if r := &s.Request; s.IsRunning() && !s.Warned && r.Warning > 0 && !r.HardEnd.IsZero() {
		return r.HardEnd.Add(-r.Warning)
	}
	return time.Time{}
}

// idle returns when a sandbox that no client uses ends; zero: never. A sandbox that is not
// running yet must run in time. A paused sandbox has a limit instead of its deadline.
func idle(s *sandbox.State) time.Time {
	switch {
	case s.Begins():
		if late := s.Request.RunBy; s.Deadline.IsZero() || !late.IsZero() && late.Before(s.Deadline) {
			return late
		}
		return s.Deadline
	case s.IsRunning():
		return s.Deadline
	case s.Phase == sandbox.PhasePaused:
		return s.PausedSince.Add(MaxPaused)
	}
	return time.Time{}
}

// afterIdle returns the event for a sandbox that is idle.
func afterIdle(s *sandbox.State, now time.Time) sandbox.Body {
	files := s.Request.OnTimeout == sandbox.OnTimeoutPauseFiles
	switch {
	case s.IsRunning() && s.Can.Pause && (files || s.Request.OnTimeout == sandbox.OnTimeoutPause):
		return sandbox.Pausing{Cause: sandbox.CauseTimeout, Files: files}
	case s.Begins() && (s.Deadline.IsZero() || s.Deadline.After(now)):
		return sandbox.Stopping{Cause: sandbox.CauseLate}
	}
	return sandbox.Stopping{Cause: sandbox.CauseTimeout}
}

// session adds the end of a session.
func (p *plan) session(s *sandbox.State, x *Session) {
	blocked := s.InPause() && !x.Owned
	if x.Phase == attachment.Ended || x.Phase == attachment.Ending && blocked {
		return
	}
	if at := detached(x); p.reached(at) {
		p.due = append(p.due, Action{Cause: Detached, At: at, Session: x.Session, Blocked: blocked})
	}
}

// detached returns when a session ends; zero: it does not end by itself.
func detached(x *Session) time.Time {
	if x.Phase == attachment.Ending { // its gateway may have died
		return x.Since.Add(endTimeout)
	}
	since, free := x.Free(x.Holder)
	ttl := x.Policy.TTL
	if ttl == 0 {
		ttl = attachment.DefaultTTL
	}
	switch {
	case !free:
		return time.Time{}
	case x.Policy.Terminate:
		return since
	case ttl < 0:
		return time.Time{}
	}
	return since.Add(ttl)
}
