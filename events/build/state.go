package build

import (
	"time"

	"github.com/millrace/millrace/events/kind"
)

// Phase is the state of a build, by its name in E2B's API.
type Phase string

// The phases.
const (
	PhaseNone     Phase = ""
	PhaseWaiting  Phase = "waiting" // for its files and steps
	PhaseBuilding Phase = "building"
	PhaseReady    Phase = "ready"
	PhaseError    Phase = "error"
	PhaseDeleted  Phase = "deleted" // hidden from clients
)

// next is the whole state machine; an absent pair cannot happen.
var next = map[Phase]map[string]Phase{
	PhaseNone:     {"requested": PhaseWaiting},
	PhaseWaiting:  {"started": PhaseBuilding, "failed": PhaseError, "deleted": PhaseDeleted},
	PhaseBuilding: {"held": PhaseBuilding, "based": PhaseBuilding, "logged": PhaseBuilding, "finished": PhaseReady, "failed": PhaseError, "deleted": PhaseDeleted},
	PhaseReady:    {"deleted": PhaseDeleted},
	PhaseError:    {"deleted": PhaseDeleted},
}

// State is a build as folded from its record. It is a value; what it points to is shared
// and must not be changed.
type State struct {
	ID      ID
	Tenant  string
	Phase   Phase
	Request Requested
	Spec    *Spec  // while it is building
	Base    *Based // while it is building; nil: not yet resolved
	Created time.Time
	Changed time.Time
	Ended   time.Time // zero until it has ended
	Holder  string
	Mark    Mark
	Lines   int // of the log
	Failure Failed

	Seq uint64 // of the last event applied
	Rev uint64 // stream sequence of the last message applied, which an append must expect
}

// Over reports whether the build has ended.
func (s *State) Over() bool {
	return s.Phase == PhaseReady || s.Phase == PhaseError || s.Phase == PhaseDeleted
}

// Apply returns the state after e, or an Internal error if e cannot follow s.
func (s State) Apply(e Event) (State, error) {
	to, ok := next[s.Phase][e.Body.kind()]
	if !ok {
		return s, kind.Newf(kind.Internal, "apply", string(s.ID), "%s in phase %q", e.Body.kind(), s.Phase)
	}
	s.Phase, s.Seq, s.Changed = to, e.Seq, e.Time
	switch b := e.Body.(type) {
	case Requested:
		s.Request, s.Created = b, e.Time
	case Started:
		s.Spec = &b.Spec
	case Claimed:
		s.Holder = b.By
	case Based:
		s.Base = &b
	case Logged:
		s.Lines += len(b.Lines)
		s.Mark = b.Mark
	case Finished, Deleted:
	case Failed:
		s.Failure = b
	}
	if s.Over() {
		s.Ended, s.Spec, s.Base, s.Mark = e.Time, nil, nil, Mark{}
	}
	return s, nil
}
