package webhook

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// Type is a kind of lifecycle event, as E2B names it.
type Type string

// The types.
const (
	Created      Type = "sandbox.lifecycle.created"
	Updated      Type = "sandbox.lifecycle.updated"
	Paused       Type = "sandbox.lifecycle.paused"
	Resumed      Type = "sandbox.lifecycle.resumed"
	Killed       Type = "sandbox.lifecycle.killed"
	Checkpointed Type = "sandbox.lifecycle.checkpointed"

	ProcessStarted Type = "process.started"
	ProcessExited  Type = "process.exited" // its end was observed
	ProcessLost    Type = "process.lost"   // its end was not observed
	ProcessFailed  Type = "process.failed" // it never started
)

// Types returns all types. Their indexes are stored, so new ones must come last.
func Types() []Type {
	return []Type{Created, Updated, Paused, Resumed, Killed, Checkpointed, ProcessStarted, ProcessExited, ProcessLost, ProcessFailed}
}

// ParseTypes validates types from outside and drops duplicates. It returns Invalid if one
// is unknown.
func ParseTypes(names []string) ([]Type, error) {
	var out []Type
	for _, name := range names {
		t := Type(name)
		if !slices.Contains(Types(), t) {
			return nil, kind.Newf(kind.Invalid, "parse event type", "", "'%.64s' is not an event type: use %v", name, Types())
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out, nil
}

// Label returns the short name of a type, for older receivers.
func (t Type) Label() string {
	switch t {
	case Created:
		return "create"
	case Updated:
		return "update"
	case Paused:
		return "pause"
	case Resumed:
		return "resume"
	case Killed:
		return "kill"
	case Checkpointed:
		return "checkpoint"
	case ProcessStarted:
		return "start"
	case ProcessExited:
		return "exit"
	case ProcessLost:
		return "lose"
	case ProcessFailed:
		return "fail"
	}
	return ""
}

// OfProcess reports whether the type is one of processes.
func (t Type) OfProcess() bool {
	switch t {
	case ProcessStarted, ProcessExited, ProcessLost, ProcessFailed:
		return true
	case Created, Updated, Paused, Resumed, Killed, Checkpointed:
	}
	return false
}

// Category returns the category of a type.
func (t Type) Category() string {
	if t.OfProcess() {
		return "process"
	}
	return "lifecycle"
}

// Position orders events of sandboxes, and those of processes: the stream sequence of the message, and the index of
// the event in it.
type Position uint64

const indexBits = 8

// At returns the position of the event with that index in a message. Messages hold a few
// events; the last index stands for all beyond it.
func At(rev uint64, index int) Position {
	return Position(rev<<indexBits | uint64(min(index, 1<<indexBits-1)))
}

// Through returns the position after all events of a message and of earlier ones.
func Through(rev uint64) Position { return At(rev+1, 0) - 1 }

// Before returns the stream sequence up to which all events of messages are at or before p.
func (p Position) Before() uint64 { return max((p+1).Rev(), 1) - 1 }

// Rev returns the stream sequence of the event's message.
func (p Position) Rev() uint64 { return uint64(p) >> indexBits }

// TypeOf returns the type of the lifecycle event that e means for a sandbox in state s; false
// if it means none. A sandbox has no lifecycle events before it first runs, and none at all
// if it belongs to a build.
func TypeOf(s *sandbox.State, e sandbox.Body) (Type, bool) {
	if s.Request.Build != "" {
		return "", false
	}
	switch e.(type) {
	case sandbox.Running:
		return Created, true
	case sandbox.Paused: // in PhaseResuming it is a failed resume
		return Paused, s.Phase == sandbox.PhasePausing
	case sandbox.Resumed: // in PhasePausing it is a failed pause
		return Resumed, s.Phase == sandbox.PhaseResuming
	case sandbox.DeadlineSet: // during a resume it is a part of that
		return Updated, !s.Started.IsZero() && s.Phase != sandbox.PhaseResuming
	case sandbox.NetworkSet:
		return Updated, !s.Started.IsZero()
	case sandbox.Snapshotted:
		return Checkpointed, true
	case sandbox.Destroyed, sandbox.Lost, sandbox.Failed:
		return Killed, !s.Started.IsZero()
	default: // E2B reports no event for the others
		return "", false
	}
}

// Event is a lifecycle event.
type Event struct {
	ID        string
	Type      Type
	Time      time.Time
	Ref       Ref
	Execution string // id of the run since the sandbox was created or resumed
	Template  string
	Build     string
	Tenant    string

	Metadata map[string]string
	Deadline time.Time      // of Updated: the new one; zero: another setting changed
	Snapshot string         // of Checkpointed
	Reason   string         // of Killed and Paused
	Ran      *ExecutionData // of Killed and Paused
	Process  *ProcessData   // of the types of processes
}

// ExecutionData describes a run of a sandbox.
type ExecutionData struct {
	Started   time.Time
	CPUs      uint32 // 0: no limit
	MemoryMiB uint32 // 0: no limit
	Took      time.Duration
}

// Fold derives the lifecycle events of one sandbox from its record. The zero value is the
// beginning of a record. It belongs to one goroutine.
type Fold struct {
	State sandbox.State
	run   int       // number of executions so far
	since time.Time // start of the last one
}

// Apply processes the next event of the record, at the given position, and returns its
// lifecycle event, if any. It skips an event that cannot follow.
func (f *Fold) Apply(e sandbox.Event, at Position) (Event, bool) {
	t, ok := TypeOf(&f.State, e.Body)
	before := f.State
	next, err := f.State.Apply(e)
	if err != nil {
		f.State.Seq = e.Seq
		return Event{}, false
	}
	f.State = next
	switch t {
	case Created, Resumed:
		if ok {
			f.run, f.since = f.run+1, e.Time
		}
	}
	if !ok {
		return Event{}, false
	}
	s := &f.State
	out := Event{
		ID:   NamedUUID("event", string(s.ID), strconv.FormatUint(e.Seq, 10)),
		Type: t, Time: e.Time, Ref: Ref{Sandbox: s.ID, Position: at},
		Execution: NamedUUID("execution", string(s.ID), strconv.Itoa(f.run)),
		Template:  cmp.Or(s.Request.Built, s.Request.Template), Build: NamedUUID("build", s.Request.Template),
		Tenant: s.Tenant, Metadata: s.Request.Metadata,
	}
	switch b := e.Body.(type) {
	case sandbox.DeadlineSet:
		out.Deadline = b.Deadline
	case sandbox.Snapshotted:
		out.Snapshot = string(b.Snapshot)
	default: // its type is enough
	}
	if t == Killed || t == Paused {
		out.Reason = cmp.Or(s.Cause, before.Cause)
		out.Ran = f.ran(&before, e.Time)
	}
	return out, true
}

// ran describes the run that ends now. If the sandbox ends while paused, the run ended with
// the pause.
func (f *Fold) ran(before *sandbox.State, now time.Time) *ExecutionData {
	if !before.PausedSince.IsZero() {
		now = before.PausedSince
	}
	return &ExecutionData{
		Started: f.since, Took: max(0, now.Sub(f.since)),
		CPUs: (f.State.Request.CPUMilli + 999) / 1000, MemoryMiB: f.State.Request.MemoryMiB,
	}
}
