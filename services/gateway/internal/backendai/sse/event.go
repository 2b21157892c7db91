package sse

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/webhook"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
)

// Cursor is the place of an event: that of the event in the log, and the number of the name.
type Cursor struct {
	At webhook.Position
	N  int
}

// Through returns the cursor after all events of messages up to a stream sequence.
func Through(rev uint64) Cursor { return Cursor{At: webhook.Through(rev)} }

// Compare compares the places of two events.
func (c Cursor) Compare(d Cursor) int { return cmp.Or(cmp.Compare(c.At, d.At), cmp.Compare(c.N, d.N)) }

// String returns the id of an event.
func (c Cursor) String() string {
	return strconv.FormatUint(uint64(c.At), 10) + "." + strconv.Itoa(c.N)
}

// ParseCursor parses the id of an event. It returns Invalid for any other text.
func ParseCursor(s string) (Cursor, error) {
	at, n, ok := strings.Cut(s, ".")
	pos, err := strconv.ParseUint(at, 10, 64)
	number, err2 := strconv.ParseUint(n, 10, 8)
	c := Cursor{webhook.Position(pos), int(number)}
	if !ok || err != nil || err2 != nil || c.String() != s {
		return Cursor{}, kind.Coded(kind.Invalid, "parse event id", "", session.BadParams, "Last-Event-ID: must be the id of an event")
	}
	return c, nil
}

// Event is one event of a session under one name.
type Event struct {
	Cursor
	Name string
	Data []byte // JSON

	SessionID, SessionName, Owner string
	done                          outcome
}

// outcome is what an event says about the command of a batch session.
type outcome struct {
	state   string // a key of taskNames; empty: nothing
	message string
}

// data is the content of an event.
type data struct {
	Reason      string `json:"reason"`
	SessionName string `json:"sessionName"`
	Owner       string `json:"ownerAccessKey"`
	SessionID   string `json:"sessionId"`
	ExitCode    *int   `json:"exitCode"`
	KernelID    string `json:"kernelId"`
	ClusterRole string `json:"clusterRole"`
	ClusterIdx  int    `json:"clusterIdx"`
}

// Of returns the events of a session that an event of its sandbox's record is; none if the sandbox
// is not a session.
func Of(e *catalog.SandboxEvent) []Event {
	name := session.Name(&e.State)
	if name == "" {
		return nil
	}
	names, cause := namesOf(e)
	if len(names) == 0 {
		return nil
	}
	id := session.UUID(e.State.ID)
	d := data{Reason: reason(cause), SessionName: name, Owner: session.Owner(&e.State), SessionID: id, KernelID: id, ClusterRole: "main", ClusterIdx: 1}
	if code, ok := session.ExitCode(cause); ok {
		d.ExitCode = &code
	}
	raw, err := json.Marshal(d)
	if err != nil {
		return nil // it has no value that cannot be encoded
	}
	out := make([]Event, len(names))
	for i, n := range names {
		out[i] = Event{Cursor: Cursor{e.Position, i + 1}, Name: n, Data: raw, SessionID: id, SessionName: name, Owner: d.Owner}
		out[i].done = outcomeOf(n, d.Reason)
	}
	return out
}

var (
	enqueued    = []string{"session_enqueued"}
	placed      = []string{"session_scheduled", "session_preparing", "kernel_preparing", "session_creating", "kernel_creating"}
	started     = []string{"kernel_started", "session_started"}
	succeeded   = []string{"session_success", "session_terminating", "kernel_terminating"}
	failed      = []string{"session_failure", "session_terminating", "kernel_terminating"}
	terminating = []string{"session_terminating", "kernel_terminating"}
	terminated  = []string{"kernel_terminated", "session_terminated"}
	cancelled   = []string{"kernel_cancelled", "session_cancelled"}
)

// namesOf returns the names of an event, and the cause of an end.
func namesOf(e *catalog.SandboxEvent) (names []string, cause string) {
	ends := terminated
	if e.State.Started.IsZero() {
		ends = cancelled
	}
	switch b := e.Event.Body.(type) {
	case sandbox.Requested:
		return enqueued, sandbox.CauseUser
	case sandbox.Placed:
		return placed, ""
	case sandbox.Running:
		return started, ""
	case sandbox.Stopping:
		code, ok := session.ExitCode(b.Cause)
		switch {
		case e.State.Host == "": // it ends at once
			return cancelled, b.Cause
		case ok && code == 0:
			return succeeded, b.Cause
		case ok:
			return failed, b.Cause
		}
		return terminating, b.Cause
	case sandbox.Destroyed:
		return ends, b.Cause
	case sandbox.Lost:
		return ends, b.Reason
	case sandbox.Failed:
		return ends, b.Message
	case sandbox.Refused:
		return cancelled, b.Reason
	default: // they are no events of a session
		return nil, ""
	}
}

// reasons are Backend.AI's names of the causes of ends.
var reasons = map[string]string{
	sandbox.CauseUser: "user-requested", sandbox.CauseTimeout: "idle-timeout", sandbox.CauseHardEnd: "session-lifetime",
	sandbox.CauseLate: "pending-timeout", "host_stopped": "agent-termination",
}

func reason(cause string) string {
	if code, ok := session.ExitCode(cause); ok {
		if code == 0 {
			return "task-finished"
		}
		return "task-failed"
	}
	return cmp.Or(reasons[cause], cause)
}
