package connect

import (
	"strconv"
	"syscall"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// ending is an end event: E2B's spelling of a process.Exit.
type ending struct {
	code   int32
	exited bool
	status string
	err    string
}

// endingOf spells an exit that somebody saw, or gives the error that a stream
// ends with instead: what nobody saw is never an end event.
func endingOf(x *process.Exit, lost string) (ending, error) {
	switch {
	case x.Cause == process.CauseTimeout:
		return ending{}, kind.New(kind.Deadline, "run", "", "the process ran into its timeout")
	case x.Cause == process.CauseSandboxGone:
		// E2B's stream breaks here: SDKs tell of the sandbox, not of a signal.
		return ending{}, unseen(x, lost)
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
	return ending{}, unseen(x, lost)
}

// unseen is the error for an end that nobody saw. It says the cause besides, so that who
// comes back where a stream breaks off knows that there is no more.
func unseen(x *process.Exit, lost string) error {
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
