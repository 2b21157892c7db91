package backendai

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
	"github.com/millrace/millrace/services/gateway/internal/backendai/signature"
)

const (
	mimeProblem  = "application/problem+json"
	problemTypes = "https://api.backend.ai/probs/"
)

// Types of problems without an error of their own.
const (
	badRequest  = "generic-bad-request"
	rateLimited = "rate-limit-exceeded"
)

// problem is the body of an error.
type problem struct {
	Type  string `json:"type"`
	Title string `json:"title"`
	Msg   string `json:"msg"`
}

// coded are the statuses of errors with a type as their code.
var coded = map[string]int{
	badRequest: http.StatusBadRequest, rateLimited: http.StatusTooManyRequests,
	session.BadParams: http.StatusBadRequest, session.Exists: http.StatusBadRequest,
	session.NotFound: http.StatusNotFound, session.ImageNotFound: http.StatusNotFound, session.AppNotFound: http.StatusNotFound,
	signature.BadParams: http.StatusBadRequest, signature.Failed: http.StatusUnauthorized,
}

// problemOf returns the status and the type of an error.
func problemOf(err error) (status int, name string) {
	var f *fiber.Error
	if errors.As(err, &f) {
		return f.Code, ofStatus(f.Code)
	}
	if status, ok := coded[kind.Code(err)]; ok {
		return status, kind.Code(err)
	}
	switch kind.Of(err) {
	case kind.Invalid, kind.Precondition, kind.Conflict:
		return http.StatusBadRequest, session.BadParams
	case kind.Unauthenticated:
		return http.StatusUnauthorized, signature.Failed
	case kind.Denied:
		return http.StatusForbidden, "generic-forbidden"
	case kind.NotFound, kind.Gone:
		return http.StatusNotFound, session.NotFound
	case kind.Throttled:
		return http.StatusTooManyRequests, rateLimited
	case kind.Unavailable, kind.Exhausted, kind.Fenced, kind.Deadline, kind.Canceled:
		return http.StatusServiceUnavailable, "instance-not-available"
	case kind.Unimplemented:
		return http.StatusNotImplemented, "not-implemented"
	case kind.Internal:
	}
	return http.StatusInternalServerError, "internal-server-error"
}

// ofStatus returns the type of an error of the router.
func ofStatus(status int) string {
	switch status {
	case http.StatusNotFound:
		return "url-not-found"
	case http.StatusMethodNotAllowed:
		return "method-not-allowed"
	case http.StatusNotImplemented:
		return "not-implemented"
	case http.StatusServiceUnavailable:
		return "instance-not-available"
	}
	if status >= http.StatusInternalServerError {
		return "internal-server-error"
	}
	return badRequest
}

// fail responds with err, and logs the details that are not sent to the client.
func (h *Handler) fail(c *fiber.Ctx, err error) error {
	status, name := problemOf(err)
	if status >= http.StatusInternalServerError {
		h.cfg.Slog.Warn("request failed", "method", c.Method(), "path", c.Path(), "status", status, "err", err)
	}
	raw, err := json.Marshal(problem{problemTypes + name, http.StatusText(status), message(err)})
	if err != nil {
		return err
	}
	c.Status(status).Set(fiber.HeaderContentType, mimeProblem)
	return c.Send(raw)
}

// message returns the text of an error for clients.
func message(err error) string {
	var f *fiber.Error
	if errors.As(err, &f) {
		return f.Message
	}
	return kind.Message(err)
}
