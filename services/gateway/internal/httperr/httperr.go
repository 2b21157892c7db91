// Package httperr turns errors into HTTP statuses and bodies in the form of each family, for
// all surfaces without codes of their own.
package httperr

import (
	"errors"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
)

// Status returns the HTTP status of k.
func Status(k kind.Kind) int {
	switch k {
	case kind.Invalid:
		return http.StatusBadRequest
	case kind.Unauthenticated:
		return http.StatusUnauthorized
	case kind.Denied:
		return http.StatusForbidden
	case kind.NotFound:
		return http.StatusNotFound
	case kind.Conflict, kind.Exhausted:
		// Exhausted is not 429, which clients take for "slow down".
		return http.StatusConflict
	case kind.Throttled:
		return http.StatusTooManyRequests
	case kind.Gone:
		return http.StatusGone
	case kind.Precondition:
		return http.StatusPreconditionFailed
	case kind.Unavailable, kind.Fenced:
		return http.StatusServiceUnavailable
	case kind.Deadline:
		return http.StatusGatewayTimeout
	case kind.Unimplemented:
		return http.StatusNotImplemented
	case kind.Canceled:
		return 499 // the client is gone
	case kind.Internal:
	}
	return http.StatusInternalServerError
}

// byCode are the statuses of errors that clients tell apart by their names, where it is not the one
// of their kind.
var byCode = map[string]int{
	"insufficient_credits":              http.StatusPaymentRequired,
	"secret_bundle_not_found_at_resume": http.StatusBadGateway,
}

// statusOf returns the status of an error.
func statusOf(k kind.Kind, code string) int {
	if s, ok := byCode[code]; ok {
		return s
	}
	return Status(k)
}

// Body is the body of an error. E2B's SDKs require Code and Message.
type Body struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code,omitempty"`

	RetryAfter int `json:"-"` // seconds, a header of the response; 0: none
}

// Of returns the body for err. For an Internal error it contains no detail.
func Of(err error) Body {
	var f *fiber.Error
	if errors.As(err, &f) {
		return Body{Code: f.Code, Message: f.Message, ErrorCode: name(http.StatusText(f.Code))}
	}
	k := kind.Of(err)
	return Body{Code: statusOf(k, kind.Code(err)), Message: kind.Message(err), ErrorCode: kind.Code(err), RetryAfter: kind.WholeSeconds(kind.After(err))}
}

func name(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "_") }

// Write responds with err.
func Write(c *fiber.Ctx, err error) error {
	b := Of(err)
	return E2B.Write(c, &b)
}

// WriteAs responds with err and a status other than its kind's.
func WriteAs(c *fiber.Ctx, status int, err error) error {
	b := Of(err)
	b.Code = status
	return E2B.Write(c, &b)
}

// WriteNamed responds with err as clients of volumes expect: its code is a name.
func WriteNamed(c *fiber.Ctx, status int, err error) error {
	b := Of(err)
	b.Code = status
	return Named.Write(c, &b)
}

// Answer responds with an error that is the expected response, and therefore not logged.
func Answer(c *fiber.Ctx, err error) error { return Write(c, err) }

// WriteJSON responds with JSON and its charset, as clients of E2B expect.
func WriteJSON(c *fiber.Ctx, status int, raw []byte) error {
	c.Status(status).Set(fiber.HeaderContentType, fiber.MIMEApplicationJSONCharsetUTF8)
	return c.Send(raw)
}
