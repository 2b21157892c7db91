package process

import "time"

// Summary is all that is known of a process but its output: one entry of the
// catalogue. The newest one counts.
type Summary struct {
	ID      ID
	Tenant  string
	Host    string
	Epoch   uint64
	Spec    Spec // with Env only while active: List shows it (C-033), the archive need not
	PID     uint32
	Started time.Time // zero: not yet, or never
	Ended   time.Time // zero: active
	Killed  bool      // a kill was asked for: it is counted as killed from then on
	Exit    *Exit     // nil: active
	Last    Seq       // seq of the record's Finished; 0: active
}

// Active reports whether the process has not ended.
func (s *Summary) Active() bool { return s.Exit == nil }

// Outcome is the status a process is counted under; the empty one counts as active.
type Outcome string

// The outcomes of C-040. Every started process ends in exactly one.
const (
	OutcomeActive Outcome = ""
	OutcomeOK     Outcome = "ok"
	OutcomeError  Outcome = "error"
	OutcomeKilled Outcome = "killed"
)

// Outcome says under what s is counted: killed from the moment a kill was asked
// for (C-024), then never otherwise; a timeout counts as killed (C-038).
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
