package durable

import (
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
)

// response is the response to a read.
type response struct {
	id      process.ID
	view    string // stream of the bytes; empty: events
	ctype   string
	body    []byte
	from    string // offsets
	next    string
	cursor  string
	now     bool // the client requested offset=now
	upTo    bool // next is the end of the stored events
	closed  bool // nothing follows
	nothing bool // a long-poll that timed out
}

// etag identifies the data between two offsets.
func (a *response) etag() string {
	parts := []string{string(a.id), a.from, a.next}
	if a.view != "" {
		parts = append(parts, a.view)
	}
	if a.closed {
		parts = append(parts, "c")
	}
	return `"` + strings.Join(parts, ":") + `"`
}

// send sends the response. One that reaches the end of an open record must be revalidated;
// any other never changes.
func (a *response) send(c *fiber.Ctx) error {
	c.Set(headerNext, a.next)
	c.Set(headerCursor, a.cursor)
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	if a.upTo || a.nothing {
		c.Set(headerUpTo, "true")
	}
	if a.closed {
		c.Set(headerClosed, "true")
	}
	if a.nothing {
		c.Set(fiber.HeaderCacheControl, "no-store")
		return c.SendStatus(fiber.StatusNoContent)
	}
	switch {
	case a.now:
		c.Set(fiber.HeaderCacheControl, "no-store")
	case a.upTo && !a.closed:
		c.Set(fiber.HeaderCacheControl, "private, no-cache")
	default:
		c.Set(fiber.HeaderCacheControl, "private, max-age=60, stale-while-revalidate=300")
	}
	if !a.now {
		etag := a.etag()
		c.Set(fiber.HeaderETag, etag)
		if matches(c.Get(fiber.HeaderIfNoneMatch), etag) {
			return c.SendStatus(fiber.StatusNotModified)
		}
	}
	c.Set(fiber.HeaderContentType, a.ctype)
	return c.Send(a.body)
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
