package connect

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Large inputs hold their message in memory, so that few of them are read at once; the
// others wait, and are told to come again after bulkWait.
const (
	maxBulks = 2
	bulkWait = 30 * time.Second
)

// bulk is one request's turn to be large. It belongs to one goroutine.
type bulk struct {
	slots chan struct{} // full: no other request may be large
	held  bool
}

// acquire waits for the turn, if the request has it not yet.
func (b *bulk) acquire(ctx context.Context) error {
	if b.held {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, bulkWait)
	defer cancel()
	select {
	case b.slots <- struct{}{}:
		b.held = true
		return nil
	case <-ctx.Done():
		return fail(CodeExhausted, "too many large messages at once: try again")
	}
}

func (b *bulk) release() {
	if b.held {
		<-b.slots
	}
}

// body reads the whole body: small bytes at once, and what is larger, up to limit, when
// it is large's turn.
func body(c *fiber.Ctx, small, limit int, large *bulk) ([]byte, error) {
	in := stream.Body(c)
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
