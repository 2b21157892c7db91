package textenc

import (
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Code returns the machine-readable name of a kind of error, such as "not_found".
func Code(k kind.Kind) string { return strings.ReplaceAll(k.String(), " ", "_") }

// Size is a terminal's size as JSON.
type Size struct {
	Cols uint32 `json:"cols"`
	Rows uint32 `json:"rows"`
}

// Summary is a process as JSON. Unknown values are null or omitted; exit_code is that of
// [ExitCode].
type Summary struct {
	PID       uint32     `json:"pid"`
	Process   string     `json:"process"`
	Sandbox   string     `json:"sandbox"`
	Host      string     `json:"host,omitempty"`
	Cmd       string     `json:"cmd"`
	Args      []string   `json:"args"`
	Cwd       string     `json:"cwd,omitempty"`
	User      string     `json:"user,omitempty"`
	Tag       *string    `json:"tag,omitempty"`
	PTY       *Size      `json:"pty,omitempty"`
	Stdin     bool       `json:"stdin,omitempty"` // the process reads input
	State     string     `json:"state"`           // "starting", "running" or "ended"
	Killed    bool       `json:"killed,omitempty"`
	StartedAt *time.Time `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	ExitCode  *int32     `json:"exit_code"`
	Signal    int32      `json:"signal,omitempty"`
	Cause     string     `json:"cause,omitempty"`
	Message   string     `json:"message,omitempty"`
	TraceID   string     `json:"trace_id,omitempty"` // of the request that started it
}

// States of a process in the API.
const (
	StateStarting = "starting"
	StateRunning  = "running"
	StateEnded    = "ended"
)

// StateOf returns the state of a process.
func StateOf(s *process.Summary) string {
	switch {
	case s.Exit != nil:
		return StateEnded
	case s.PID == 0:
		return StateStarting
	}
	return StateRunning
}

// SummaryOf returns s as JSON.
func SummaryOf(s *process.Summary) Summary {
	out := Summary{
		PID: s.PID, Process: string(s.ID), Sandbox: string(s.ID.Sandbox()), Host: s.Host,
		Cmd: s.Spec.Cmd, Args: s.Spec.Args, Cwd: s.Spec.Cwd, User: s.Spec.User, Tag: s.Spec.Tag,
		Stdin: s.Spec.Stdin, State: StateOf(s), Killed: s.Killed,
		StartedAt: OptionalTime(s.Started), EndedAt: OptionalTime(s.Ended),
	}
	if out.Args == nil {
		out.Args = []string{}
	}
	if s.Spec.PTY != nil {
		out.PTY = &Size{s.Spec.PTY.Cols, s.Spec.PTY.Rows}
	}
	if t := s.Spec.Trace; t != nil {
		out.TraceID = t.ID.String()
	}
	if x := s.Exit; x != nil {
		out.Signal, out.Cause, out.Message = x.Signal, string(x.Cause), x.Message
		if code, seen := ExitCode(x); seen {
			out.ExitCode = &code
		}
	}
	return out
}

// OptionalTime returns t in UTC, or nil if t is zero: an unknown time, which JSON omits.
func OptionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	u := t.UTC()
	return &u
}
