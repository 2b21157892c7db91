package core

import (
	"errors"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

const noSandbox = "sandbox not found"

// NoSandbox returns the error for a sandbox that does not exist or is not the principal's.
func NoSandbox(id sandbox.ID) error {
	return kind.New(kind.NotFound, "find sandbox", string(id), noSandbox)
}

// ForeignSandbox is NoSandbox for a sandbox of another tenant, whose owner the audit trail names.
func ForeignSandbox(id sandbox.ID, owner string) error {
	return &kind.Error{Op: "find sandbox", ID: string(id), Kind: kind.NotFound, Msg: noSandbox, Err: &ForeignError{owner}}
}

// LogError returns an error of the log that has no kind as Unavailable, and any other as it is;
// nil stays nil.
func LogError(op, id string, err error) error {
	var e *kind.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return &kind.Error{Op: op, ID: id, Kind: kind.Unavailable, Msg: "the log cannot be reached: try again", Err: err}
}

// ForeignError is the cause of a NotFound error for something of another tenant. The audit trail names
// the owner, the response does not.
type ForeignError struct{ Owner string }

func (f *ForeignError) Error() string { return "it belongs to tenant " + f.Owner }
