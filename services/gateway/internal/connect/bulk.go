package connect

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/httpconn"
)

// Large inputs are buffered in memory, so only a few are read at once. The others wait,
// and fail with "try again" after bulkWait.
const (
	maxBulks = 2
	bulkWait = 30 * time.Second
)

// bulk is a request's slot for a large message. It must be used by one goroutine.
type bulk struct {
	slots    chan struct{} // full: no other request may be large
	acquired bool
}

// acquire waits for a slot, unless the request has one already.
func (b *bulk) acquire(ctx context.Context) error {
	if b.acquired {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, bulkWait)
	defer cancel()
	select {
	case b.slots <- struct{}{}:
		b.acquired = true
		return nil
	case <-ctx.Done():
		return fail(CodeExhausted, "too many large messages at once: try again")
	}
}

func (b *bulk) release() {
	if b.acquired {
		<-b.slots
	}
}

// body reads the whole body: up to small bytes at once, and a larger one, up to limit,
// once it has a slot.
func body(c *fiber.Ctx, small, limit int, large *bulk) ([]byte, error) {
	in := httpconn.Body(c)
	raw, err := io.ReadAll(io.LimitReader(in, int64(small)+1))
	if err == nil && len(raw) > small && limit > small {
		if err := large.acquire(c.UserContext()); err != nil {
			return nil, err
		}
		buf := bytes.NewBuffer(raw)
		if n := c.Request().Header.ContentLength(); n > 0 {
			buf.Grow(min(n, limit) - len(raw) + bytes.MinRead)
		}
		_, err = buf.ReadFrom(io.LimitReader(in, int64(limit)+1-int64(len(raw))))
		raw = buf.Bytes()
	}
	switch {
	case err != nil:
		return nil, fail(CodeInvalid, "read body: %v", err)
	case len(raw) > limit:
		return nil, fail(CodeExhausted, "message is larger than the limit of %d", limit)
	}
	return raw, nil
}
