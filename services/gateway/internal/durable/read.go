package durable

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

const (
	// maxChunk is when an answer has enough: the client asks for the rest.
	maxChunk = 1 << 20
	// pollSlice is how long a long-poll may not notice that the gateway drains.
	pollSlice = 500 * time.Millisecond
)

// chunk is the body of an answer in the making: a JSON array of events.
type chunk struct {
	body []byte
	end  process.Seq
	fin  bool
	n    int
}

// add takes events until there is enough, and reports whether there is.
func (k *chunk) add(batch []process.Event) (full bool) {
	for i := range batch {
		if len(k.body) >= maxChunk {
			return true
		}
		sep := byte(',')
		if k.n++; k.n == 1 {
			sep = '['
		}
		k.body = textenc.AppendEvent(append(k.body, sep), &batch[i])
		k.end = batch[i].Seq
		_, k.fin = batch[i].Body.(process.Finished)
	}
	return len(k.body) >= maxChunk
}

func (k *chunk) bytes() []byte {
	if k.n == 0 {
		return []byte("[]")
	}
	return append(k.body, ']')
}

// catchUp answers with what is stored.
func catchUp(ctx context.Context, c *fiber.Ctx, r reading) error {
	k := chunk{end: r.After, fin: r.AtEnd()}
	for {
		batch, err := r.Source.Next(ctx, 0)
		full := k.add(batch)
		if full || errors.Is(err, io.EOF) {
			return answer(c, r, &k, k.end >= r.Tip.Last)
		}
		if err != nil {
			return err
		}
	}
}

// answer sends a chunk, or says that the client has it. An answer that reaches
// the end of a record that goes on is asked for again; any other stays true.
func answer(c *fiber.Ctx, r reading, k *chunk, upTo bool) error {
	c.Set(headerNext, offset(k.end))
	c.Set(headerCursor, r.cursor)
	if upTo {
		c.Set(headerUpTo, "true")
	}
	if k.fin {
		c.Set(headerClosed, "true")
	}
	switch {
	case r.now:
		c.Set(fiber.HeaderCacheControl, "no-store")
	case upTo && !k.fin:
		c.Set(fiber.HeaderCacheControl, "private, no-cache")
	default:
		c.Set(fiber.HeaderCacheControl, "private, max-age=60, stale-while-revalidate=300")
	}
	if !r.now {
		etag := r.etag(k.end, k.fin)
		c.Set(fiber.HeaderETag, etag)
		if matches(c.Get(fiber.HeaderIfNoneMatch), etag) {
			return c.SendStatus(fiber.StatusNotModified)
		}
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.Send(k.bytes())
}

// matches reports whether an If-None-Match names etag.
func matches(header, etag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		if part = strings.TrimSpace(part); part == "*" || strings.TrimPrefix(part, "W/") == etag {
			return true
		}
	}
	return false
}

// longPoll answers with what is stored after the offset, or with what comes
// first, or, after a while of nothing, with 204.
func (h *Handler) longPoll(ctx context.Context, c *fiber.Ctx, r reading) error {
	k := chunk{end: r.After, fin: r.AtEnd()}
	until := time.Now().Add(h.poll)
	for !k.fin && !h.streams.Draining() {
		left := time.Until(until)
		if left <= 0 {
			break
		}
		batch, err := r.Source.Next(ctx, min(left, pollSlice))
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(batch) > 0 {
			full := k.add(batch)
			return answer(c, r, &k, !full && k.end >= r.Tip.Last)
		}
		if err != nil {
			k.fin = true
		}
	}
	c.Set(headerNext, offset(k.end))
	c.Set(headerCursor, r.cursor)
	c.Set(headerUpTo, "true")
	c.Set(fiber.HeaderCacheControl, "no-store")
	if k.fin {
		c.Set(headerClosed, "true")
	}
	return c.SendStatus(fiber.StatusNoContent)
}
