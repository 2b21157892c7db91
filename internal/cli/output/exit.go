package output

import (
	"errors"
	"fmt"
)

// Exit codes of Millrace itself.
const (
	ExitMillrace = 125 // Millrace failed, the command did not
	ExitSignal   = 128 // plus the signal's number
)

// ExitError makes the program exit with Code. Err is printed unless it is nil: a remote
// command that fails has printed its own error.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the text of Err, or the exit status if Err is nil.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode returns the exit code for err and the message to print; the message may be
// empty.
func ExitCode(err error) (code int, message string) {
	if err == nil {
		return 0, ""
	}
	var exit *ExitError
	if errors.As(err, &exit) {
		if exit.Err == nil {
			return exit.Code, ""
		}
		return exit.Code, Plain(exit.Err.Error())
	}
	return 1, Plain(err.Error())
}

// MillraceError wraps an error of Millrace, as opposed to the command's, with its exit code.
func MillraceError(err error) error {
	var exit *ExitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	return &ExitError{Code: ExitMillrace, Err: err}
}
