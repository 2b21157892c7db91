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

// refuseFraming refuses what a proxy in front may have read otherwise than the
// server did (request smuggling), and closes the connection: nothing that follows
// on it can be trusted. The server itself refuses the rest.
func refuseFraming(c *fiber.Ctx) error {
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

// refusePath refuses a path of ours that a proxy in front may have read
// otherwise. Those of servers in sandboxes are not ours to judge.
func refusePath(c *fiber.Ctx) error {
	path := c.Request().URI().PathOriginal()
	// E2B's SDKs write team/name so.
	named := bytes.HasPrefix(path, []byte("/templates/")) || bytes.HasPrefix(path, []byte("/v2/templates/"))
	if !ambiguousPath(path, named) {
		return c.Next()
	}
	c.Context().SetConnectionClose()
	return fiber.NewError(fiber.StatusBadRequest, "encoded slash, backslash or NUL in the path")
}

// framing reads the head as it came and tells what makes its body's length a
// matter of opinion.
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

// ambiguousPath reports whether who decodes the path early reads another one. slash
// says that one may be encoded: its parts are names, and a shorter one is not there.
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

// streamedBody is the one request whose answer may cross its body: each message
// of it is bounded by its surface.
const streamedBody = "/process.Process/StreamInput"

const (
	prealloc  = 64 << 10 // of a body is believed before it has come
	maxUnread = 64 << 10 // of one that nobody wants is read before the answer, so that its connection can be used again
)

// streamed reports whether a request's surface reads its body as it comes.
func streamed(c *fiber.Ctx) bool {
	return c.Path() == files.Path && c.Method() == fiber.MethodPost || files.VolumeUpload(c) || c.Path() == connect.InputPath ||
		strings.HasPrefix(c.Path(), e2b.UploadPath) && c.Method() == fiber.MethodPut
}

// leaveBody leaves the body to who knows whether it is wanted, and sees to one that
// nobody read: the server takes what is left of a body for the next request.
func (s *server) leaveBody(c *fiber.Ctx) error {
	switch {
	case c.Context().RequestBodyStream() == nil:
		return c.Next()
	case streamed(c):
		return stream.Streamed(c)
	case c.Path() == streamedBody:
		// The client may take its time, and what it has not sent when the
		// answer leaves must not become a request.
		c.Context().SetConnectionClose()
		c.Context().Conn().SetReadDeadline(noDeadline) //nolint:errcheck // the next read tells
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

// holdAnswer has a large answer take its tenant's room until it is read: the server gives
// clients any time for that, and holds it.
func (s *server) holdAnswer(c *fiber.Ctx) error {
	err := c.Next()
	res := c.Response()
	if err != nil || c.Context().Hijacked() || c.Method() == fiber.MethodHead || len(res.Body()) <= stream.OwnRoom {
		return err
	}
	body := bytes.Clone(res.Body())
	res.ResetBody()
	err = s.streams.Answer(c, body, s.streams.Room(auth.From(c).Tenant), nil)
	if err != nil {
		res.Header.Del(fiber.HeaderContentEncoding) // of what is not sent
	}
	return err
}

// limitBody reads the body, up to the limit: the server does not bound what is streamed
// to it. It comes behind auth, so that nobody is held memory for who may ask nothing.
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
		buf.Grow(min(n, prealloc) + bytes.MinRead) // ReadFrom wants room to find the end in
	}
	room := s.streams.Room(auth.From(c).Tenant)
	defer room.Shrink(0)
	n, err := buf.ReadFrom(room.Reader(io.LimitReader(body, int64(s.cfg.MaxBody)+1)))
	switch {
	case errors.Is(err, stream.ErrNoRoom):
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

// tooLarge answers a request whose body is larger than it may be, at once.
func (s *server) tooLarge(c *fiber.Ctx) error {
	if err := httperr.Write(c, fiber.ErrRequestEntityTooLarge); err != nil {
		return err
	}
	s.streams.Refuse(c)
	return nil
}

const headerRequestID = "X-Request-Id"

// requestID gives each request a name that client and log share: the client's
// own if it is short and plain.
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
