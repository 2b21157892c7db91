package webhook

import (
	"cmp"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// ProcessData describes a process in an event.
type ProcessData struct {
	process.Summary
	Over bool // the event reports its end
}

// SetSandbox sets what an event of a process has from its sandbox.
func (e *Event) SetSandbox(s *sandbox.State) {
	e.Template, e.Metadata = cmp.Or(s.Request.Built, s.Request.Template), s.Request.Metadata
	e.Build = NamedUUID("build", s.Request.Template)
}

// Indexes of the events of a process in their message.
const (
	indexStarted = iota
	indexEnded
)

// OfProcess returns the events of a process that its entry in the catalog reports, in order: its
// start, its end, or both. The entry has the stream sequence rev.
func OfProcess(s *process.Summary, rev uint64, started, ended bool) []Event {
	var out []Event
	if started {
		out = append(out, processEvent(s, ProcessStarted, At(rev, indexStarted)))
	}
	if ended {
		out = append(out, processEvent(s, EndOf(s), At(rev, indexEnded)))
	}
	return out
}

// ProcessAt returns the event of a process at a position, from its present entry in the catalog. It
// returns false if the entry does not have it.
func ProcessAt(s *process.Summary, p Position) (Event, bool) {
	ended := p == At(p.Rev(), indexEnded)
	if ended && s.Active() || !ended && s.Started.IsZero() {
		return Event{}, false
	}
	return OfProcess(s, p.Rev(), !ended, ended)[0], true
}

// EndOf returns the type of the event that reports the end of a process.
func EndOf(s *process.Summary) Type {
	switch {
	case s.Exit.Seen():
		return ProcessExited
	case s.Exit.Cause == process.CauseNotStarted || s.Started.IsZero():
		return ProcessFailed
	}
	return ProcessLost
}

func processEvent(s *process.Summary, t Type, at Position) Event {
	e := Event{
		ID: NamedUUID("process event", string(s.ID), string(t)), Type: t, Time: s.Started,
		Ref: Ref{Sandbox: s.ID.Sandbox(), Process: s.ID, Position: at}, Tenant: s.Tenant,
		Process: &ProcessData{Summary: *s, Over: t != ProcessStarted},
	}
	if e.Process.Over {
		e.Time = s.Ended
	}
	return e
}

// processBody is a process in event_data. The environment is not part of it.
type processBody struct {
	ID        process.ID    `json:"process_id"`
	PID       uint32        `json:"pid,omitempty"`
	Host      string        `json:"host,omitempty"`
	Tag       *string       `json:"tag,omitempty"`
	Cmd       string        `json:"cmd"`
	Args      []string      `json:"args,omitempty"`
	StartedAt *time.Time    `json:"started_at,omitempty"`
	EndedAt   *time.Time    `json:"ended_at,omitempty"`
	Duration  int64         `json:"duration_ms,omitempty"`
	ExitCode  *int32        `json:"exit_code,omitempty"`
	Signal    int32         `json:"signal,omitempty"`
	Cause     process.Cause `json:"cause,omitempty"`
	Message   string        `json:"message,omitempty"`
	TraceID   string        `json:"trace_id,omitempty"`
	SpanID    string        `json:"span_id,omitempty"`
}

func (d *ProcessData) body() *processBody {
	b := &processBody{ID: d.ID, PID: d.PID, Host: d.Host, Tag: d.Spec.Tag, Cmd: d.Spec.Cmd, Args: d.Spec.Args}
	if t := d.Spec.Trace; t != nil {
		b.TraceID, b.SpanID = t.ID.String(), t.SpanFor(d.ID).String()
	}
	if !d.Started.IsZero() {
		at := d.Started.UTC()
		b.StartedAt = &at
	}
	if d.Over && d.Exit != nil {
		at := d.Ended.UTC()
		b.EndedAt, b.ExitCode, b.Signal, b.Cause, b.Message = &at, d.Exit.Code, d.Exit.Signal, d.Exit.Cause, d.Exit.Message
		if !d.Started.IsZero() {
			b.Duration = max(0, d.Ended.Sub(d.Started)).Milliseconds()
		}
	}
	return b
}
