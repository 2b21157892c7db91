package connect

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
)

// Code is an error code of the Connect protocol.
type Code string

// Codes that this surface returns.
const (
	CodeCanceled     Code = "canceled"
	CodeInvalid      Code = "invalid_argument"
	CodeDeadline     Code = "deadline_exceeded"
	CodeNotFound     Code = "not_found"
	CodeExists       Code = "already_exists"
	CodeDenied       Code = "permission_denied"
	CodeExhausted    Code = "resource_exhausted"
	CodePrecondition Code = "failed_precondition"
	CodeOutOfRange   Code = "out_of_range"
	CodeUnimpl       Code = "unimplemented"
	CodeInternal     Code = "internal"
	CodeUnavailable  Code = "unavailable"
	CodeDataLoss     Code = "data_loss"
	CodeUnauth       Code = "unauthenticated"
)

// codeOf maps kinds to codes.
func codeOf(k kind.Kind) Code {
	switch k {
	case kind.Invalid:
		return CodeInvalid
	case kind.Unauthenticated:
		return CodeUnauth
	case kind.Denied:
		return CodeDenied
	case kind.NotFound:
		return CodeNotFound
	case kind.Conflict:
		return CodeExists
	case kind.Exhausted, kind.Throttled:
		return CodeExhausted
	case kind.Unavailable, kind.Fenced:
		return CodeUnavailable
	case kind.Deadline:
		return CodeDeadline
	case kind.Unimplemented:
		return CodeUnimpl
	case kind.Gone:
		return CodeOutOfRange
	case kind.Canceled:
		return CodeCanceled
	case kind.Precondition:
		return CodePrecondition
	case kind.Internal:
	}
	return CodeInternal
}

// Status returns the HTTP status of a unary call that fails with c.
func (c Code) Status() int {
	switch c {
	case CodeInvalid, CodeOutOfRange, CodePrecondition:
		return http.StatusBadRequest
	case CodeUnauth:
		return http.StatusUnauthorized
	case CodeDenied:
		return http.StatusForbidden
	case CodeNotFound:
		return http.StatusNotFound
	case CodeExists:
		return http.StatusConflict
	case CodeExhausted:
		return http.StatusTooManyRequests
	case CodeCanceled:
		return 499
	case CodeUnimpl:
		return http.StatusNotImplemented
	case CodeUnavailable:
		return http.StatusServiceUnavailable
	case CodeDeadline:
		return http.StatusGatewayTimeout
	case CodeInternal, CodeDataLoss:
	}
	return http.StatusInternalServerError
}

// wireError is an error with a code that no kind maps to, or a text that E2B's
// clients match on.
type wireError struct {
	code  Code
	msg   string
	cause process.Cause // cause of the record's end, if that is the error
}

func (e *wireError) Error() string { return string(e.code) + ": " + e.msg }

func fail(code Code, format string, args ...any) error {
	return &wireError{code: code, msg: fmt.Sprintf(format, args...)}
}

// errorBody is the JSON of an error.
type errorBody struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

func errorBodyOf(err error) errorBody {
	var w *wireError
	if errors.As(err, &w) {
		return errorBody{w.code, w.msg}
	}
	return errorBody{codeOf(kind.Of(err)), kind.Message(err)}
}

// endOfStream is the payload of a stream's last envelope, which is JSON in every
// codec.
type endOfStream struct {
	Error    *errorBody          `json:"error,omitempty"`
	Metadata map[string][]string `json:"metadata,omitempty"`
}

// appendEnd appends the last envelope. position, if not empty, is where a reconnecting
// client resumes. If the record has ended instead, the metadata x-end-cause names the
// cause.
func appendEnd(dst []byte, err error, position string) []byte {
	words := endOfStream{}
	if err != nil {
		t := errorBodyOf(err)
		words.Error = &t
		var w *wireError
		switch {
		case position != "":
			words.Metadata = map[string][]string{"x-replay-from": {position}}
		case errors.As(err, &w) && w.cause != "":
			words.Metadata = map[string][]string{"x-end-cause": {string(w.cause)}}
		}
	}
	raw, bad := json.Marshal(words)
	if bad != nil {
		raw = []byte(`{"error":{"code":"internal","message":"internal"}}`)
	}
	dst, at := openEnvelope(dst)
	return closeEnvelope(append(dst, raw...), at, flagEnd)
}

// unrouted reports that the sandbox of a request does not run.
type unrouted struct{ name string }

func (u *unrouted) Error() string { return "sandbox " + u.name + " was not found" }

// answerUnrouted responds as E2B's proxy does, which the SDKs take for the end of
// the sandbox.
func answerUnrouted(c *fiber.Ctx, u *unrouted) error {
	return httperr.WriteProxied(c, httperr.Gone(u.name))
}

// answer responds to a unary call with an error.
func answer(c *fiber.Ctx, err error) error {
	var u *unrouted
	if errors.As(err, &u) {
		return answerUnrouted(c, u)
	}
	t := errorBodyOf(err)
	raw, bad := json.Marshal(t)
	if bad != nil {
		return bad
	}
	c.Status(t.Code.Status()).Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.Send(raw)
}
