package stream

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/gofiber/fiber/v2"
)

const (
	stall     = time.Minute      // how long a client may send nothing of its body
	lingering = 20 * time.Second // how long a body is read that nobody wants
)

// body is a request's body as it comes.
type body struct {
	c     *fiber.Ctx
	r     io.Reader
	n     int64 // bytes read
	ended bool  // nothing more can be read: after the end the next request follows
	whole bool  // and all of it was
}

type bodyKey struct{}

// Streamed is the middleware that leaves a body to its surface, and sees to what
// is left of it: read for a while, because a client that is cut off while it sends
// never sees the answer, or else closed with the connection, because it would be
// taken for the next request.
func Streamed(c *fiber.Ctx) error {
	b := &body{c: c, r: c.Context().RequestBodyStream()}
	c.Locals(bodyKey{}, b)
	c.Context().SetConnectionClose()
	err := c.Next()
	b.drain()
	if b.whole && !c.Request().Header.ConnectionClose() {
		c.Response().Header.ResetConnectionClose()
	}
	return err
}

// Body is the body, as it comes where Streamed left it. It shares memory with the request.
func Body(c *fiber.Ctx) io.Reader {
	if b, ok := c.Locals(bodyKey{}).(*body); ok {
		return b
	}
	if s := c.Context().RequestBodyStream(); s != nil {
		return s
	}
	return bytes.NewReader(c.Request().Body())
}

// Read reads the body; a client that sends nothing for long is given up.
func (b *body) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	b.c.Context().Conn().SetReadDeadline(time.Now().Add(stall)) //nolint:errcheck // the read tells
	n, err := b.r.Read(p)
	b.n += int64(n)
	if errors.Is(err, io.EOF) && Cut(b.c, b.n) {
		err = io.ErrUnexpectedEOF
	}
	b.ended, b.whole = err != nil, errors.Is(err, io.EOF)
	return n, err
}

func (b *body) drain() {
	for end := time.Now().Add(lingering); !b.ended && time.Now().Before(end); {
		io.CopyN(io.Discard, b, 1<<20) //nolint:errcheck // ended tells
	}
}
