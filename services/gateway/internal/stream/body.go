package stream

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/gofiber/fiber/v2"
)

const (
	bodyReadTimeout = time.Minute      // how long a client may send nothing of its body
	lingerTimeout   = 20 * time.Second // how long an unneeded body is read
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
	b.c.Context().Conn().SetReadDeadline(time.Now().Add(bodyReadTimeout)) //nolint:errcheck // the read fails
	n, err := b.r.Read(p)
	b.n += int64(n)
	if errors.Is(err, io.EOF) && Cut(b.c, b.n) {
		err = io.ErrUnexpectedEOF
	}
	b.ended, b.complete = err != nil, errors.Is(err, io.EOF)
	return n, err
}

func (b *body) drain() {
	for end := time.Now().Add(lingerTimeout); !b.ended && time.Now().Before(end); {
		io.CopyN(io.Discard, b, 1<<20) //nolint:errcheck // b.ended has the result
	}
}
