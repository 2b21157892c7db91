package sandbox

import (
	"time"

	"github.com/millrace/millrace/events/kind"
)

// Phase is where a sandbox is in its life.
type Phase string

// The phases; their names are shown as they stand.
const (
	PhaseNone      Phase = ""
	PhaseRequested Phase = "requested"
	PhasePlaced    Phase = "placed"
	PhaseRunning   Phase = "running"
	PhaseStopping  Phase = "stopping"
	PhaseRefused   Phase = "refused"
	PhaseDestroyed Phase = "destroyed"
	PhaseLost      Phase = "lost"
	PhaseFailed    Phase = "failed"
)

// next is the whole state machine; a pair that is absent cannot happen.
var next = map[Phase]map[string]Phase{
	PhaseNone:      {"requested": PhaseRequested},
	PhaseRequested: {"placed": PhasePlaced, "refused": PhaseRefused, "deadline_set": PhaseRequested, "stopping": PhaseDestroyed},
	PhasePlaced:    {"running": PhaseRunning, "failed": PhaseFailed, "lost": PhaseLost, "deadline_set": PhasePlaced, "stopping": PhaseStopping},
	PhaseRunning:   {"deadline_set": PhaseRunning, "stopping": PhaseStopping, "destroyed": PhaseDestroyed, "lost": PhaseLost},
	PhaseStopping:  {"destroyed": PhaseDestroyed, "lost": PhaseLost, "failed": PhaseFailed},
}

// State is a sandbox as its record tells it. It is a value: Apply gives a new
// one; its maps are shared and must not be changed.
type State struct {
	ID       ID
	Tenant   string
	Phase    Phase
	Request  Requested
	Host     string // empty until placed
	Epoch    uint64
	Driver   string
	Created  time.Time
	Started  time.Time // zero until running
	Ended    time.Time // zero until it ended
	Deadline time.Time
	Cause    string // why it stops, ended or was refused
	Refusal  kind.Kind
	Seq      uint64 // of the last event applied
	Rev      uint64 // stream sequence of the last message applied: what an append must expect
}

// Ended reports whether the sandbox is over, however it ended.
func (s *State) Over() bool {
	switch s.Phase {
	case PhaseRefused, PhaseDestroyed, PhaseLost, PhaseFailed:
		return true
	}
	return false
}

// Live reports whether processes may be started in it.
func (s *State) Live() bool { return s.Phase == PhaseRunning }

// Apply is the state after e, or an Internal error if e cannot follow s.
func (s State) Apply(e Event) (State, error) {
	to, ok := next[s.Phase][e.Body.kind()]
	if !ok {
		return s, kind.Newf(kind.Internal, "apply", string(s.ID), "%s in phase %q", e.Body.kind(), s.Phase)
	}
	s.Phase, s.Seq = to, e.Seq
	switch b := e.Body.(type) {
	case Requested:
		s.Request, s.Created, s.Deadline = b, e.Time, b.Deadline
	case Placed:
		s.Host, s.Epoch = b.Host, b.Epoch
	case Refused:
		s.Refusal, s.Cause = kind.Kind(b.Kind), b.Reason
	case Running:
		s.Driver, s.Started = b.Driver, e.Time
	case DeadlineSet:
		s.Deadline = b.Deadline
	case Stopping:
		s.Cause = b.Cause
	case Destroyed:
		s.Cause = b.Cause
	case Lost:
		s.Cause = b.Reason
	case Failed:
		s.Cause = b.Message
	}
	if s.Over() {
		s.Ended = e.Time
	}
	return s, nil
}
