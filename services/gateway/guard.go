package gateway

import (
	"bytes"
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/workspace"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/family"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/rate"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// rejectPath rejects API paths that a proxy in front may have read differently. Paths of
// servers in sandboxes pass.
func rejectPath(c *fiber.Ctx) error {
	if !httpconn.AmbiguousPath(c.Request().URI().PathOriginal(), route.Part(c).EncodedSlash) {
		return c.Next()
	}
	c.Context().SetConnectionClose()
	return fiber.NewError(fiber.StatusBadRequest, "encoded slash, backslash or NUL in the path")
}

// disposeBody leaves the body to the handler and afterwards disposes of an unread rest, which
// the server would read as the next request.
func (s *server) disposeBody(c *fiber.Ctx) error {
	switch body := route.Part(c).Body; {
	case c.Context().RequestBodyStream() == nil:
		return c.Next()
	case body == family.Streamed && c.Request().Header.ContentLength() <= workspace.MaxFile:
		return httpconn.Streamed(c) // a larger body is rejected, which its client learns at once
	case body == family.Duplex:
		// The client may send slowly, and what it has not sent when the response is complete must
		// not become a request.
		c.Context().SetConnectionClose()
		c.Context().Conn().SetReadDeadline(noDeadline)
		return c.Next()
	}
	return s.streams.Dispose(c, c.Next())
}

// budgetAnswer charges a large response to its tenant's buffer budget until the client has read
// it: the server sets clients no time limit, and keeps the response in memory.
func (s *server) budgetAnswer(c *fiber.Ctx) error {
	err := c.Next()
	res := c.Response()
	if err != nil || c.Context().Hijacked() || c.Method() == fiber.MethodHead || len(res.Body()) <= stream.BaseBudget {
		return err
	}
	body := bytes.Clone(res.Body())
	res.ResetBody()
	err = s.streams.Answer(c, body, s.streams.Budget(auth.From(c).Tenant), nil)
	if err != nil {
		res.Header.Del(fiber.HeaderContentEncoding) // the encoded body is not sent
	}
	return err
}

// limitBody reads the body up to the limit: the server does not limit streamed bodies. It runs
// after auth, and reads nothing for public paths, so that unauthenticated requests take no memory.
func (s *server) limitBody(c *fiber.Ctx) error {
	body, part := c.Context().RequestBodyStream(), route.Part(c)
	switch {
	case body == nil, part.Body != family.Limited, part.Credentials.Has(family.Public):
		return c.Next()
	case c.Request().Header.ContentLength() > s.cfg.MaxBody:
		return s.tooLarge(c)
	}
	budget := s.streams.Budget(auth.From(c).Tenant)
	defer budget.Shrink(0)
	n, err := httpconn.ReadBody(c, budget.Reader(body), s.cfg.MaxBody)
	switch {
	case errors.Is(err, stream.ErrOverBudget):
		return err
	case err != nil:
		return httpconn.Unreadable(c)
	case n > s.cfg.MaxBody:
		return s.tooLarge(c)
	}
	return c.Next()
}

// limitRate limits the requests of a tenant to e2a's API, over all gateways.
func (s *server) limitRate(c *fiber.Ctx) error {
	part, tenant := route.Part(c), auth.From(c).Tenant
	if part.Family != family.E2A || tenant == "" {
		return c.Next()
	}
	key, limit := "e2a "+tenant, cmp.Or(max(s.cfg.Users.Requests, 0), defaultRequests)
	if part.Catalogue {
		key, limit = "e2a catalogue "+tenant, cmp.Or(max(s.cfg.Users.Catalogue, 0), defaultCatalogue)
	}
	if left, after := s.counts.Add(key, time.Now(), rate.Limit{Requests: limit, Period: time.Minute}); left < 0 {
		return kind.Slow("count request", after)
	}
	return c.Next()
}

// Default limits of a tenant's requests to e2a's API per minute.
const (
	defaultRequests  = 6000
	defaultCatalogue = 120
)

// tooLarge rejects a request with a too large body at once.
func (s *server) tooLarge(c *fiber.Ctx) error {
	if err := route.WriteError(c, fiber.ErrRequestEntityTooLarge); err != nil {
		return err
	}
	s.streams.Refuse(c)
	return nil
}

const headerRequestID = "X-Request-Id"

// requestID sets the id of a request in responses and logs: the client's own if it is short and
// plain.
func requestID(c *fiber.Ctx) error {
	id := c.Get(headerRequestID)
	if !plain(id) {
		id = strings.ToLower(ulid.Make().String())
	}
	c.Set(headerRequestID, id)
	return c.Next()
}

func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && c != '-' && c != '_' {
			return false
		}
	}
	return len(s) > 0 && len(s) <= 64
}
