package httpconn

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/gofiber/fiber/v2"
)

const (
	bodyReadTimeout = time.Minute      // how long a client may send nothing of its body
	drainTimeout    = 20 * time.Second // how long an unneeded body is read
	maxPrealloc     = 64 << 10         // bytes allocated in advance for the announced length of a body
	maxUnread       = 256 << 10        // bytes of an unread body that are discarded to make a connection reusable
	maxDisposed     = 64 << 10         // bytes of an unread body that are read before the response, to keep the connection usable
)

// body is a request body that is read while it arrives.
type body struct {
	c        *fiber.Ctx
	r        io.Reader
	n        int64 // bytes read
	ended    bool  // no more may be read: after the end the next request follows
	complete bool  // the end was reached
}

type bodyKey struct{}

// Streamed is middleware that leaves the body to the handler and then deals with the
// rest. It reads on for a while, because a client that is disconnected while it sends
// never receives the response. If there is still more, the connection is closed, because
// the rest would be parsed as the next request.
func Streamed(c *fiber.Ctx) error {
	b := &body{c: c, r: c.Context().RequestBodyStream()}
	c.Locals(bodyKey{}, b)
	c.Context().SetConnectionClose()
	err := c.Next()
	b.drain()
	if b.complete && !c.Request().Header.ConnectionClose() {
		c.Response().Header.ResetConnectionClose()
	}
	return err
}

// Body returns the body as a stream if Streamed left it unread. It shares memory with the request.
func Body(c *fiber.Ctx) io.Reader {
	if b, ok := c.Locals(bodyKey{}).(*body); ok {
		return b
	}
	if s := c.Context().RequestBodyStream(); s != nil {
		return s
	}
	return bytes.NewReader(c.Request().Body())
}

// Read reads the body. It fails if the client sends nothing for bodyReadTimeout.
func (b *body) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	b.c.Context().Conn().SetReadDeadline(time.Now().Add(bodyReadTimeout))
	n, err := b.r.Read(p)
	b.n += int64(n)
	if errors.Is(err, io.EOF) && Cut(b.c, b.n) {
		err = io.ErrUnexpectedEOF
	}
	b.ended, b.complete = err != nil, errors.Is(err, io.EOF)
	return n, err
}

func (b *body) drain() {
	for end := time.Now().Add(drainTimeout); !b.ended && time.Now().Before(end); {
		io.CopyN(io.Discard, b, 1<<20) //nolint:errcheck // b.ended has the result
	}
}

// ReadBody reads the body of a request from r, its stream, and reports how many bytes it has:
// the server limits no streamed body. The body becomes that of the request unless it has more
// than limit bytes. It returns an error if r fails or the client left.
func ReadBody(c *fiber.Ctx, r io.Reader, limit int) (int, error) {
	var buf bytes.Buffer
	if n := c.Request().Header.ContentLength(); n > 0 {
		buf.Grow(min(n, maxPrealloc) + bytes.MinRead) // ReadFrom needs space to find the end
	}
	n, err := buf.ReadFrom(io.LimitReader(r, int64(limit)+1))
	switch {
	case err != nil || n > int64(limit):
		return int(n), err
	case Cut(c, n):
		return int(n), io.ErrUnexpectedEOF
	}
	c.Request().SetBodyRaw(buf.Bytes())
	return int(n), nil
}

// Unreadable returns the error for a body that cannot be read, and makes the server close
// the connection.
func Unreadable(c *fiber.Ctx) error {
	c.Context().SetConnectionClose()
	return fiber.NewError(fiber.StatusBadRequest, "the body cannot be read")
}

// Dispose disposes of the rest of a body that its handler, which returned err, did not read:
// the server would read it as the next request.
func (s *Conns) Dispose(c *fiber.Ctx, err error) error {
	if c.Context().RequestBodyStream() == nil || c.Context().Hijacked() {
		return err
	}
	if c.Request().Header.ContentLength() <= maxDisposed {
		switch whole, bad := Discard(c, maxDisposed); {
		case bad != nil:
			return Unreadable(c)
		case whole:
			return err
		}
	}
	if err != nil {
		if err := c.App().ErrorHandler(c, err); err != nil {
			return err
		}
	}
	s.Refuse(c)
	return nil
}

// DiscardBody reads the rest of the request's body and reports whether it reached
// the end. Otherwise the connection must be closed: the rest would be parsed
// as the next request.
func DiscardBody(c *fiber.Ctx) bool {
	whole, err := Discard(c, maxUnread-1)
	return whole && err == nil
}

// Discard is like [DiscardBody] for a body of at most limit bytes. It returns an error
// if the body cannot be read.
func Discard(c *fiber.Ctx, limit int64) (whole bool, err error) {
	body := c.Context().RequestBodyStream()
	if body == nil {
		return true, nil
	}
	if _, err = io.CopyN(io.Discard, body, limit+1); errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}
