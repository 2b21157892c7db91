// Package kind holds the one error type that crosses package borders in Millrace. Its
// [Kind] classes the error by what the caller may do; every surface has one table from Kind
// to its own codes, and nothing else decides a status.
package kind

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind classes an error by what the caller may do about it. The numbers are stored
// (Refused, Failed, Reply) and must not change.
type Kind uint32

const (
	Internal        Kind = 0  // a bug, or an unforeseen error: reveal little, log everything
	Invalid         Kind = 1  // the request can never succeed
	Unauthenticated Kind = 2  // credentials are missing or invalid
	Denied          Kind = 3  // the caller lacks permission
	NotFound        Kind = 4  // it does not exist, or belongs to another tenant
	Conflict        Kind = 5  // another writer was first, or the state forbids it: read again, then decide
	Exhausted       Kind = 6  // a capacity or quota is used up
	Unavailable     Kind = 7  // try again later
	Deadline        Kind = 8  // the time limit has passed
	Unimplemented   Kind = 9  // not supported here
	Gone            Kind = 10 // it existed, but fell out of retention
	Fenced          Kind = 11 // a newer run of the writer exists: stop writing
	Canceled        Kind = 12 // the caller canceled
	Precondition    Kind = 13 // the object is in the wrong state for this
	Throttled       Kind = 14 // the caller sent too many requests: wait as long as the error says
)

var names = [...]string{"internal", "invalid", "unauthenticated", "denied", "not found", "conflict",
	"exhausted", "unavailable", "deadline", "unimplemented", "gone", "fenced", "canceled", "precondition", "throttled"}

// String returns the kind's name for people.
func (k Kind) String() string {
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// Error is an error that may leave its package. Its text, without the cause's,
// may be shown to a client.
type Error struct {
	Op   string // operation: "append", "start"
	ID   string // its object; empty if none in particular
	Kind Kind
	Msg  string // text for the client, if Kind is not enough
	Code string // name of this error for programs; empty: the name of Kind
	Err  error  // the cause; nil if Kind is enough

	After time.Duration // time to wait, if Kind is Throttled
}

// New returns an error with a text for the client.
func New(k Kind, op, id, msg string) error { return &Error{Op: op, ID: id, Kind: k, Msg: msg} }

// Coded is New with a name for programs.
func Coded(k Kind, op, id, code, msg string) error {
	return &Error{Op: op, ID: id, Kind: k, Code: code, Msg: msg}
}

// Slow returns a Throttled error with the time to wait.
func Slow(op string, after time.Duration) error {
	seconds := WholeSeconds(after)
	return &Error{Op: op, Kind: Throttled, After: after, Msg: fmt.Sprintf("too many requests: try again in %d s", seconds)}
}

// WholeSeconds returns a time to wait in seconds, rounded up.
func WholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// After returns the time to wait after a Throttled error, and 0 for others.
func After(err error) time.Duration {
	var e *Error
	if errors.As(err, &e) {
		return e.After
	}
	return 0
}

// Newf is New with a format for the text.
func Newf(k Kind, op, id, format string, args ...any) error {
	return New(k, op, id, fmt.Sprintf(format, args...))
}

// Wrap returns err with a kind. A nil err stays nil.
func Wrap(k Kind, op, id string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, ID: id, Kind: k, Err: err}
}

// Error returns the full text, for logs.
func (e *Error) Error() string {
	parts := make([]string, 0, 4)
	if e.Op != "" {
		parts = append(parts, strings.TrimSpace(e.Op+" "+e.ID))
	}
	parts = append(parts, e.Kind.String())
	if e.Msg != "" {
		parts[len(parts)-1] = e.Msg
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Of returns the kind of err: that of the outermost Error in its chain, Canceled or
// Deadline for a context's error, Internal for anything else. Of(nil) is Internal.
func Of(err error) Kind {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Kind
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return Deadline
	}
	return Internal
}

// Is reports whether err is of kind k.
func Is(err error, k Kind) bool { return err != nil && Of(err) == k }

// Code returns the name of err for programs: the Code of the outermost Error in its chain,
// otherwise the name of its kind, in lower case with underscores.
func Code(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Code != "" {
		return e.Code
	}
	return strings.ReplaceAll(Of(err).String(), " ", "_")
}

// Message returns the text of err that a client may read: never the cause of an Internal
// one.
func Message(err error) string {
	var e *Error
	if !errors.As(err, &e) {
		return Of(err).String()
	}
	if e.Msg != "" {
		return e.Msg
	}
	if e.Kind != Internal && e.Err != nil {
		return e.Err.Error()
	}
	return e.Kind.String()
}
