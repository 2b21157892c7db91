package connect

import (
	"strconv"
	"syscall"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// ending is an end event: a process.Exit in E2B's terms.
type ending struct {
	code   int32
	exited bool
	status string
	err    string
}

// endingOf converts an observed exit, or returns the error that ends the stream
// instead: an exit that was not observed is never an end event.
func endingOf(x *process.Exit, lost string) (ending, error) {
	switch {
	case x.Cause == process.CauseTimeout:
		return ending{}, kind.New(kind.Deadline, "run", "", "the process ran into its timeout")
	case x.Cause == process.CauseSandboxGone:
		// E2B's stream breaks here: its SDKs then report the sandbox, not a signal.
		return ending{}, unobserved(x, lost)
	case x.Code != nil && *x.Code == 0:
		return ending{exited: true}, nil
	case x.Code != nil:
		status := "exit status " + strconv.Itoa(int(*x.Code))
		return ending{code: *x.Code, exited: true, status: status, err: status}, nil
	case x.Signal != 0:
		status := "signal: " + syscall.Signal(x.Signal).String()
		end := ending{code: -1, status: status, err: status}
		if x.Cause == process.CauseOOM {
			end.err += " (out of memory)"
		}
		return end, nil
	}
	return ending{}, unobserved(x, lost)
}

// unobserved returns the error for an exit that was not observed. It carries the cause, so
// that a client that resumes stops there.
func unobserved(x *process.Exit, lost string) error {
	why := x.Message
	if why == "" {
		why = lost
	}
	text := func(s string) string {
		if why == "" {
			return s
		}
		return s + ": " + why
	}
	switch x.Cause {
	case process.CauseSandboxGone:
		return &wireError{CodeUnavailable, text("the sandbox was killed or reached its end of life while the process ran"), x.Cause}
	case process.CauseNotStarted:
		return &wireError{CodeInternal, text("the process never started"), x.Cause}
	}
	return &wireError{CodeDataLoss, text("the process was lost; its exit is unknown"), x.Cause}
}
