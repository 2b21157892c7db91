package process

import "time"

// Summary is everything about a process except its output: one entry of the catalog. The
// latest entry counts.
type Summary struct {
	ID      ID
	Tenant  string
	Host    string
	Epoch   uint64
	Spec    Spec // with Env only while active, because List shows it (C-033)
	PID     uint32
	Started time.Time // zero: not yet, or never
	Ended   time.Time // zero: active
	Killed  bool      // a kill was requested: from then on it counts as killed
	Exit    *Exit     // nil: active
	Last    Seq       // seq of the record's Finished; 0: active
}

// Active reports whether the process has not ended.
func (s *Summary) Active() bool { return s.Exit == nil }

// Outcome is the status under which a process is counted; the empty one counts as active.
type Outcome string

// The outcomes (C-040). Every started process ends in exactly one.
const (
	OutcomeActive Outcome = ""
	OutcomeOK     Outcome = "ok"
	OutcomeError  Outcome = "error"
	OutcomeKilled Outcome = "killed"
)

// Outcome returns the status under which s is counted: killed for good from the request of
// a kill on (C-024); a timeout counts as killed (C-038).
func (s *Summary) Outcome() Outcome {
	switch {
	case s.Killed:
		return OutcomeKilled
	case s.Exit == nil:
		return OutcomeActive
	case s.Exit.Cause == CauseTimeout || s.Exit.Cause == CauseKilled || s.Exit.Cause == CauseSandboxGone:
		return OutcomeKilled
	case s.Exit.OK():
		return OutcomeOK
	}
	return OutcomeError
}
