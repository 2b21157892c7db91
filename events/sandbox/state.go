package sandbox

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// Phase is the state of a sandbox.
type Phase string

// The phases. Their names are shown to users.
const (
	PhaseNone      Phase = ""
	PhaseRequested Phase = "requested"
	PhaseQueued    Phase = "queued"
	PhasePlaced    Phase = "placed"
	PhaseRunning   Phase = "running"
	PhasePausing   Phase = "pausing"
	PhasePaused    Phase = "paused"
	PhaseResuming  Phase = "resuming"
	PhaseStopping  Phase = "stopping"
	PhaseRefused   Phase = "refused"
	PhaseDestroyed Phase = "destroyed"
	PhaseLost      Phase = "lost"
	PhaseFailed    Phase = "failed"
)

// next is the whole state machine; an absent pair cannot happen.
var next = map[Phase]map[string]Phase{
	PhaseNone:      {"requested": PhaseRequested},
	PhaseRequested: {"queued": PhaseQueued, "placed": PhasePlaced, "refused": PhaseRefused, "deadline_set": PhaseRequested, "stopping": PhaseDestroyed},
	PhaseQueued:    {"placed": PhasePlaced, "refused": PhaseRefused, "deadline_set": PhaseQueued, "stopping": PhaseDestroyed},
	PhasePlaced:    {"running": PhaseRunning, "failed": PhaseFailed, "lost": PhaseLost, "deadline_set": PhasePlaced, "stopping": PhaseStopping},
	PhaseRunning: {"deadline_set": PhaseRunning, "stopping": PhaseStopping, "destroyed": PhaseDestroyed, "lost": PhaseLost,
		"pausing": PhasePausing, "snapshotted": PhaseRunning, "warned": PhaseRunning, "mounted": PhaseRunning, "unmounted": PhaseRunning, "network_set": PhaseRunning, "network_used": PhaseRunning},
	PhasePausing: {"deadline_set": PhasePausing, "stopping": PhaseStopping, "destroyed": PhaseDestroyed, "lost": PhaseLost,
		"paused": PhasePaused, "resumed": PhaseRunning, "snapshotted": PhasePausing, "unmounted": PhasePausing, "network_set": PhasePausing, "network_used": PhasePausing},
	PhasePaused: {"deadline_set": PhasePaused, "stopping": PhaseStopping, "destroyed": PhaseDestroyed, "lost": PhaseLost,
		"resuming": PhaseResuming, "snapshotted": PhasePaused, "unmounted": PhasePaused, "network_set": PhasePaused, "network_used": PhasePaused},
	PhaseResuming: {"deadline_set": PhaseResuming, "stopping": PhaseStopping, "destroyed": PhaseDestroyed, "lost": PhaseLost,
		"resumed": PhaseRunning, "paused": PhasePaused, "snapshotted": PhaseResuming, "unmounted": PhaseResuming, "network_set": PhaseResuming, "network_used": PhaseResuming},
	PhaseStopping:  {"destroyed": PhaseDestroyed, "lost": PhaseLost, "failed": PhaseFailed, "snapshotted": PhaseStopping, "unmounted": PhaseStopping, "network_used": PhaseStopping},
	PhaseDestroyed: {"unmounted": PhaseDestroyed},
	PhaseLost:      {"unmounted": PhaseLost},
}

// State is a sandbox as folded from its record. It is a value: Apply returns a new one; its
// maps are shared and must not be changed.
type State struct {
	ID      ID
	Tenant  string
	Phase   Phase
	Request Requested // once running, with the driver's limits where it has none
	Host    string    // empty until placed
	Epoch   uint64
	Driver  string    // the requested driver until running, then the actual one
	Can     Abilities // zero until running
	Created time.Time
	Started time.Time // zero until running
	InPauses
	Ended    time.Time // zero until it has ended
	Deadline time.Time // zero until running, unless set before; at most Request.HardEnd
	Warned   bool      // its record has a Warned
	Mount    WorkspaceMount
	Lifetime time.Duration // sets Deadline when it runs, or runs again; 0: Deadline stays
	Queued   string        // why it waits for a host; empty unless queued
	Message  string        // why the last pause or resume failed; empty: it did not
	Outcome
	Network Network     // current network
	Used    NetworkUsed // as far as it is known

	// Unenforced are the limits that its driver does not enforce; none until running.
	Unenforced []Limit

	// Isolation is its actual isolation; empty until running.
	Isolation Isolation

	Seq uint64 // of the last event applied
	Rev uint64 // stream sequence of the last message applied, which an append must expect
}

// WorkspaceMount is the gateway that stores what changes in a sandbox's workspace.
type WorkspaceMount struct {
	Gateway string    // empty: none
	Since   time.Time // when the last gateway began; zero: none ever did
}

// AwaitsUnmount reports whether its end waits for a gateway to store what has changed.
func (s *State) AwaitsUnmount() bool { return s.Phase == PhaseStopping && s.Mount.Gateway != "" }

// InPauses is what is known about the pauses of a sandbox.
type InPauses struct {
	PausedSince time.Time // since when it is paused; zero if it is not
	Pauses      []Pause   // its last maxPauses past pauses; not to be changed
	Reboot      bool      // its processes end on resume
}

// Outcome is why a sandbox ends.
type Outcome struct {
	Cause   string    // why it is stopping, ended or was refused
	Refusal kind.Kind // of a refused sandbox
}

// Pause is a period for which a sandbox was paused.
type Pause struct{ From, To time.Time }

const maxPauses = 256

// addPause returns a copy of all with r appended, unless r never began.
func addPause(all []Pause, r Pause) []Pause {
	if r.From.IsZero() {
		return all
	}
	return append(slices.Clip(all[max(0, len(all)-maxPauses+1):]), r)
}

// Over reports whether the sandbox has ended, for whatever reason.
func (s *State) Over() bool {
	switch s.Phase {
	case PhaseRefused, PhaseDestroyed, PhaseLost, PhaseFailed:
		return true
	}
	return false
}

// Begins reports whether it has not run yet but may.
func (s *State) Begins() bool {
	return s.Phase == PhaseRequested || s.Phase == PhaseQueued || s.Phase == PhasePlaced
}

// AwaitsPlacement reports whether it waits for a scheduler to place it.
func (s *State) AwaitsPlacement() bool { return s.Phase == PhaseRequested || s.Phase == PhaseQueued }

// IsRunning reports whether processes may be started in it.
func (s *State) IsRunning() bool { return s.Phase == PhaseRunning }

// InPause reports whether it is pausing, paused or resuming.
func (s *State) InPause() bool {
	return s.Phase == PhasePausing || s.Phase == PhasePaused || s.Phase == PhaseResuming
}

// AutoResumes reports whether a request resumes the sandbox while it is paused. A reboot does not
// wait for a request, which would find no server.
func (s *State) AutoResumes() bool { return s.Request.AutoResume && !s.Reboot }

// IdentityEnv returns the environment variables that identify the sandbox to its processes.
func IdentityEnv(id ID, r *Requested) map[string]string {
	return map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": string(id), "E2B_TEMPLATE_ID": cmp.Or(r.Built, r.Template)}
}

// minResumedLifetime is the minimum lifetime after a resume by traffic.
const minResumedLifetime = 5 * time.Minute

// ResumeEvents returns the events that resume a paused sandbox for a request. Its lifetime starts
// again.
func (s *State) ResumeEvents() []Body {
	return []Body{Resuming{Cause: CauseTraffic, Lifetime: max(minResumedLifetime, s.Request.Lifetime)}}
}

// startLifetime starts the lifetime at now, when the sandbox runs or runs again.
func (s *State) startLifetime(now time.Time) {
	if s.Lifetime > 0 {
		s.Deadline = s.Clamp(now.Add(s.Lifetime))
	}
	s.Lifetime = 0
}

// Clamp returns a deadline, or the hard end if that is earlier.
func (s *State) Clamp(deadline time.Time) time.Time {
	if end := s.Request.HardEnd; !end.IsZero() && end.Before(deadline) {
		return end
	}
	return deadline
}

// Apply returns the state after e, or an Internal error if e cannot follow s.
func (s State) Apply(e Event) (State, error) {
	to, ok := next[s.Phase][e.Body.kind()]
	if !ok {
		return s, kind.Newf(kind.Internal, "apply", string(s.ID), "%s in phase %q", e.Body.kind(), s.Phase)
	}
	s.Phase, s.Seq = to, e.Seq
	s.fold(e)
	if s.Over() && s.Ended.IsZero() {
		s.Ended = e.Time
	}
	return s, nil
}

// fold applies an event that may follow.
func (s *State) fold(e Event) {
	switch b := e.Body.(type) {
	case Requested:
		s.Request, s.Created, s.Lifetime = b, e.Time, cmp.Or(b.Lifetime, b.Idle)
		s.Network = b.Network
		s.Network.Internet = b.AllowInternet
	case Queued:
		s.Queued = b.Reason
	case Placed:
		s.Host, s.Epoch, s.Driver, s.Queued = b.Host, b.Epoch, b.Driver, ""
	case Refused:
		s.Refusal, s.Cause, s.Queued = kind.Kind(b.Kind), b.Reason, ""
	case Running:
		s.Driver, s.Isolation, s.Can, s.Started = b.Driver, b.Isolation, b.Can, e.Time
		s.Unenforced = b.Unenforced
		s.startLifetime(e.Time)
		s.Request.CPUMilli, s.Request.MemoryMiB = cmp.Or(s.Request.CPUMilli, b.CPUMilli), cmp.Or(s.Request.MemoryMiB, b.MemoryMiB)
	case DeadlineSet:
		s.Deadline, s.Lifetime = s.Clamp(b.Deadline), 0
	case Pausing:
		s.Cause, s.Reboot = b.Cause, b.Files
	case Paused:
		s.Lifetime = 0
		s.Message, s.PausedSince = b.Message, cmp.Or(s.PausedSince, e.Time) // a failed resume does not interrupt the pause
	case Resuming:
		s.Cause, s.Reboot, s.Lifetime = b.Cause, s.Reboot || b.Reboot, b.Lifetime
		s.Request.OnTimeout = cmp.Or(b.OnTimeout, s.Request.OnTimeout)
	case Resumed:
		s.Pauses = addPause(s.Pauses, Pause{s.PausedSince, e.Time})
		s.Message, s.Cause, s.PausedSince, s.Reboot = b.Message, "", time.Time{}, false
		s.Lifetime = cmp.Or(s.Request.Idle, s.Lifetime) // a pause does not count as idle
		s.startLifetime(e.Time)
	case Snapshotted: // a fact that changes nothing
	case NetworkSet:
		s.Network = b.Network
	case NetworkUsed:
		s.Used = b
	case Warned:
		s.Warned = true
	case Mounted:
		s.Mount = WorkspaceMount{b.Gateway, e.Time}
	case Unmounted:
		s.Mount.Gateway = ""
	case Stopping:
		s.Cause, s.Queued = b.Cause, ""
		if !s.PausedSince.IsZero() { // its files cannot be read
			s.Mount.Gateway = ""
		}
	case Destroyed:
		s.Cause = b.Cause
	case Lost:
		s.Cause = b.Reason
	case Failed:
		s.Cause = b.Message
	}
}
