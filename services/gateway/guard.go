package gateway

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/connect"
	"github.com/millrace/millrace/services/gateway/internal/e2b"
	"github.com/millrace/millrace/services/gateway/internal/files"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// rejectFraming rejects requests whose framing a proxy in front may have read differently
// (request smuggling), and closes the connection: nothing that follows on it can be trusted.
// The server itself rejects the rest.
func rejectFraming(c *fiber.Ctx) error {
	req := c.Request()
	why := framing(req.Header.RawHeaders())
	switch {
	case why != "":
	case !bytes.HasPrefix(req.Header.Protocol(), []byte("HTTP/1.")):
		why = "HTTP version not supported"
	default:
		return c.Next()
	}
	c.Context().SetConnectionClose()
	return fiber.NewError(fiber.StatusBadRequest, why)
}

// rejectPath rejects API paths that a proxy in front may have read differently. Paths of
// servers in sandboxes pass.
func rejectPath(c *fiber.Ctx) error {
	path := c.Request().URI().PathOriginal()
	// E2B's SDKs encode team/name like this.
	named := bytes.HasPrefix(path, []byte("/templates/")) || bytes.HasPrefix(path, []byte("/v2/templates/"))
	if !ambiguousPath(path, named) {
		return c.Next()
	}
	c.Context().SetConnectionClose()
	return fiber.NewError(fiber.StatusBadRequest, "encoded slash, backslash or NUL in the path")
}

// framing returns what makes the length of the body ambiguous in the raw head; empty if
// nothing does.
func framing(head []byte) string {
	length, encodings := false, 0
	for line := range bytes.Lines(head) {
		if line[0] == ' ' || line[0] == '\t' {
			return "folded header"
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		switch {
		case bytes.EqualFold(name, []byte(fiber.HeaderContentLength)):
			length = true
		case bytes.EqualFold(name, []byte(fiber.HeaderTransferEncoding)):
			if encodings++; string(bytes.TrimSpace(value)) != "chunked" {
				return "transfer encoding other than chunked"
			}
		}
	}
	if encodings > 1 || length && encodings > 0 {
		return "body length given twice"
	}
	return ""
}

// ambiguousPath reports whether decoding the path early changes its structure. slash allows
// encoded slashes: the path contains names, and no route has the decoded form.
func ambiguousPath(p []byte, slash bool) bool {
	for i, b := range p {
		switch {
		case b == '\\' || b == 0:
			return true
		case b == '%' && i+2 < len(p):
			switch strings.ToLower(string(p[i+1 : i+3])) {
			case "2f":
				if !slash {
					return true
				}
			case "00", "5c":
				return true
			}
		}
	}
	return false
}

// streamedBody is the path of the one request whose response begins while its body is read: its
// surface limits each message.
const streamedBody = "/process.Process/StreamInput"

const (
	maxPrealloc = 64 << 10 // bytes allocated in advance for the announced length of a body
	maxUnread   = 64 << 10 // bytes of an unread body that are read before the response, to keep the connection usable
)

// streamed reports whether a request's surface reads the body as a stream.
func streamed(c *fiber.Ctx) bool {
	return c.Path() == files.Path && c.Method() == fiber.MethodPost || files.VolumeUpload(c) || c.Path() == connect.InputPath ||
		strings.HasPrefix(c.Path(), e2b.UploadPath) && c.Method() == fiber.MethodPut
}

// disposeBody leaves the body to the handler and afterwards disposes of an unread rest, which
// the server would read as the next request.
func (s *server) disposeBody(c *fiber.Ctx) error {
	switch {
	case c.Context().RequestBodyStream() == nil:
		return c.Next()
	case streamed(c):
		return stream.Streamed(c)
	case c.Path() == streamedBody:
		// The client may send slowly, and what it has not sent when the response is complete must
		// not become a request.
		c.Context().SetConnectionClose()
		c.Context().Conn().SetReadDeadline(noDeadline) //nolint:errcheck // the next read reports it
		return c.Next()
	}
	err := c.Next()
	if c.Context().RequestBodyStream() == nil || c.Context().Hijacked() {
		return err
	}
	if c.Request().Header.ContentLength() <= maxUnread {
		switch whole, bad := stream.Discard(c, maxUnread); {
		case bad != nil:
			return unreadable(c)
		case whole:
			return err
		}
	}
	if err != nil {
		if err := c.App().ErrorHandler(c, err); err != nil {
			return err
		}
	}
	s.streams.Refuse(c)
	return nil
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
// after auth, so that unauthenticated requests take no memory.
func (s *server) limitBody(c *fiber.Ctx) error {
	body := c.Context().RequestBodyStream()
	switch {
	case body == nil, streamed(c), c.Path() == streamedBody:
		return c.Next()
	case c.Request().Header.ContentLength() > s.cfg.MaxBody:
		return s.tooLarge(c)
	}
	var buf bytes.Buffer
	if n := c.Request().Header.ContentLength(); n > 0 {
		buf.Grow(min(n, maxPrealloc) + bytes.MinRead) // ReadFrom needs space to find the end
	}
	budget := s.streams.Budget(auth.From(c).Tenant)
	defer budget.Shrink(0)
	n, err := buf.ReadFrom(budget.Reader(io.LimitReader(body, int64(s.cfg.MaxBody)+1)))
	switch {
	case errors.Is(err, stream.ErrOverBudget):
		return err
	case err != nil || n <= int64(s.cfg.MaxBody) && stream.Cut(c, n):
		return unreadable(c)
	case n > int64(s.cfg.MaxBody):
		return s.tooLarge(c)
	}
	c.Request().SetBodyRaw(buf.Bytes())
	return c.Next()
}

func unreadable(c *fiber.Ctx) error {
	c.Context().SetConnectionClose()
	return fiber.NewError(fiber.StatusBadRequest, "the body cannot be read")
}

// tooLarge rejects a request with a too large body at once.
func (s *server) tooLarge(c *fiber.Ctx) error {
	if err := httperr.Write(c, fiber.ErrRequestEntityTooLarge); err != nil {
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
