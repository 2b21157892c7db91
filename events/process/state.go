package process

import (
	"github.com/millrace/millrace/events/kind"
)

// State is the state of a process.
type State uint8

// The states, in order.
const (
	StateNone     State = iota // no event yet
	StateAccepted              // claimed by a host
	StateRunning               // has a pid
	StateExited                // has ended; its output may still drain
	StateFinished              // no event follows
)

// next is the whole state machine; an absent pair cannot happen.
var next = map[State]map[string]State{
	StateNone: {"accepted": StateAccepted},
	StateAccepted: {
		"start": StateRunning, "error": StateExited, "lost": StateExited, "exited": StateExited,
		"end": StateFinished, "signaled": StateAccepted,
	},
	StateRunning: {
		"stdout": StateRunning, "stderr": StateRunning, "pty": StateRunning, "omitted": StateRunning, "stdin_ack": StateRunning,
		"resized": StateRunning, "signaled": StateRunning, "truncated": StateRunning,
		"exited": StateExited, "lost": StateExited, "end": StateFinished,
	},
	StateExited: {
		"stdout": StateExited, "stderr": StateExited, "pty": StateExited, "omitted": StateExited, "stdin_ack": StateExited,
		"resized": StateExited, "signaled": StateExited, "truncated": StateExited,
		"lost": StateExited, "end": StateFinished,
	},
}

// Apply returns the state after e, or an Internal error if e cannot follow s.
func (s State) Apply(e Event) (State, error) {
	if to, ok := next[s][e.Body.kind()]; ok {
		return to, nil
	}
	return s, kind.Newf(kind.Internal, "apply", "", "%s in state %d", e.Body.kind(), s)
}
