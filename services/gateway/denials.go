package gateway

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/audit"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/family"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// crossTenant is the event of a request for something of another tenant.
const crossTenant = "cross_tenant_denied"

// maxAuditPath is the maximum length of a path in the audit trail.
const maxAuditPath = 256

// auditDenial is middleware that stores each request of e2a, or with the token of a
// link, that is denied in the audit trail, before the client has the response.
func (s *server) auditDenial(c *fiber.Ctx) error {
	err := c.Next()
	if route.Part(c).Family != family.E2A && c.Get(auth.HeaderShare) == "" {
		return err
	}
	e := audit.Entry{Status: c.Response().StatusCode(), Event: kind.Unauthenticated.String()} // of the middleware
	if err != nil {
		b := httperr.Of(err)
		e.Status, e.Event = b.Code, b.ErrorCode
	}
	if !denied(e.Status, err) {
		return err
	}
	var f *core.ForeignError
	if errors.As(err, &f) {
		e.Owner = f.Owner
		if e.Event == strings.ReplaceAll(kind.Of(err).String(), " ", "_") { // it has no name of its own
			e.Event = crossTenant
		}
	}
	e.Time, e.Method, e.Path = time.Now().UTC(), strings.Clone(c.Method()), auditPath(c)
	e.Tenant, e.Request = auth.From(c).Tenant, string(c.Response().Header.Peek(headerRequestID))
	if a := s.e2a.Client(c); a.IsValid() {
		e.Source = a.String()
	}
	s.audit.Deny(c.UserContext(), e)
	return err
}

// auditPath returns the path of a request for the audit trail, without a credential: a link may be
// denied for one method and valid for another.
func auditPath(c *fiber.Ctx) string {
	path := strings.ToValidUTF8(c.Path(), "?")
	if route.Part(c).PathToken {
		path = strings.TrimRight(path, "/")
		path = path[:strings.LastIndexByte(path, '/')+1] + "{token}"
	}
	return strings.Clone(path[:min(len(path), maxAuditPath)])
}

// denied reports whether a response denies a request. A path without a route is not a denial.
func denied(status int, err error) bool {
	var f *fiber.Error
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return true
	case http.StatusNotFound:
		return err != nil && !errors.As(err, &f)
	}
	return false
}
