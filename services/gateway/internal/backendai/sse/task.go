package sse

import (
	"encoding/json"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
)

// States of a background task.
const (
	taskUpdated   = "updated"
	taskDone      = "done"
	taskFailed    = "failed"
	taskCancelled = "cancelled"
)

// outcomes are what the events of a session say about its command.
var outcomes = map[string]string{
	"session_started": taskUpdated, "session_success": taskDone, "session_failure": taskFailed,
	"session_terminated": taskCancelled, "session_cancelled": taskCancelled,
}

func outcomeOf(name, reason string) outcome { return outcome{outcomes[name], reason} }

// taskPrefixes begin the names of a task's events: those of the servers and of the documentation.
var taskPrefixes = [...]string{"bgtask_", "task_"}

// closing is the last event of a task: its client does not reconnect.
const closing = "server_close"

// task is the content of a task's event.
type task struct {
	ID      string `json:"task_id"`
	Message string `json:"message"`
	Current int    `json:"current_progress"`
	Total   int    `json:"total_progress"`
}

// Task returns the function that selects the events of a session's command for [Hub.Listen], and
// the events that describe its state now.
func Task(st *sandbox.State) (pick func(dst []Event, e *Event) []Event, now []Event) {
	id := session.UUID(st.ID)
	pick = func(dst []Event, e *Event) []Event {
		if e.SessionID != id || e.done.state == "" {
			return dst
		}
		return appendTask(dst, id, e.Cursor, e.done)
	}
	code, exited := session.ExitCode(st.Cause)
	switch {
	case exited && code == 0:
		now = appendTask(nil, id, Cursor{}, outcome{taskDone, reason(st.Cause)})
	case exited:
		now = appendTask(nil, id, Cursor{}, outcome{taskFailed, reason(st.Cause)})
	case st.Over():
		now = appendTask(nil, id, Cursor{}, outcome{taskCancelled, reason(st.Cause)})
	default:
		now = appendTask(nil, id, Cursor{}, outcome{taskUpdated, session.Status(st)})
	}
	return pick, now
}

// appendTask appends a state of a task under all its names and, if it is the last one, the end.
func appendTask(dst []Event, id string, at Cursor, is outcome) []Event {
	t := task{ID: id, Message: is.message, Total: 1}
	if is.state != taskUpdated {
		t.Current = 1
	}
	raw, err := json.Marshal(t)
	if err != nil {
		return dst // it has no value that cannot be encoded
	}
	for _, prefix := range taskPrefixes {
		dst = append(dst, Event{Cursor: at, Name: prefix + is.state, Data: raw})
	}
	if is.state != taskUpdated {
		dst = append(dst, Event{Cursor: at, Name: closing, Data: []byte("{}")})
	}
	return dst
}
