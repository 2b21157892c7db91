package durable

import (
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// The protocol's headers.
const (
	headerNext   = "Stream-Next-Offset"
	headerCursor = "Stream-Cursor"
	headerUpTo   = "Stream-Up-To-Date"
	headerClosed = "Stream-Closed"
)

// Handler serves /v1/streams. Its methods may be called concurrently.
type Handler struct {
	core    record.Records
	streams *stream.Streams
	poll    time.Duration // how long a long-poll waits
	cycle   time.Duration // how long an SSE connection lives
}

// New gives the surface on a core. Its streams are streams'.
func New(c *core.Core, streams *stream.Streams) *Handler {
	return &Handler{core: record.Gateway{Core: c}, streams: streams, poll: 25 * time.Second, cycle: time.Minute}
}

// Register adds the routes. The principal must have been found before.
func (h *Handler) Register(r fiber.Router) {
	r.Add(fiber.MethodGet, "/v1/streams/:id", h.get)
	r.Add(fiber.MethodHead, "/v1/streams/:id", h.head)
	for _, method := range []string{fiber.MethodPut, fiber.MethodPost, fiber.MethodPatch, fiber.MethodDelete} {
		r.Add(method, "/v1/streams/:id", readOnly)
	}
}

func readOnly(c *fiber.Ctx) error {
	c.Set(fiber.HeaderAllow, "GET, HEAD")
	return fiber.NewError(fiber.StatusMethodNotAllowed, "a process's record is written by its host only")
}

// get reads: what is stored, or with live what comes.
func (h *Handler) get(c *fiber.Ctx) error {
	id, err := record.ProcessID(c, "id")
	if err != nil {
		return err
	}
	place, err := parseOffset(c.Query("offset"))
	if err != nil {
		return err
	}
	live := c.Query("live")
	switch {
	case live != "" && live != "long-poll" && live != "sse":
		return kind.New(kind.Invalid, "read", string(id), `live: "long-poll" or "sse"`)
	case live != "" && c.Query("offset") == "":
		return kind.New(kind.Invalid, "read", string(id), "a live read needs an offset")
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	o, err := record.Open(ctx, h.core, auth.From(c), id, record.Options{Place: place, Follow: live != ""})
	if err != nil {
		return record.WriteError(c, err)
	}
	r := reading{id: id, Opened: o, cursor: nextCursor(c.Query("cursor"), time.Now()), now: place.Now}
	setCommon(c)
	switch live {
	case "sse":
		return h.sse(c, r)
	case "long-poll":
		defer o.Source.Close()
		c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
		return h.longPoll(ctx, c, r)
	}
	defer o.Source.Close()
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	return catchUp(ctx, c, r)
}

// head tells where the record ends.
func (h *Handler) head(c *fiber.Ctx) error {
	id, err := record.ProcessID(c, "id")
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	o, err := record.Open(ctx, h.core, auth.From(c), id, record.Options{Place: record.Place{Now: true}})
	if err != nil {
		return record.WriteError(c, err)
	}
	o.Source.Close()
	setCommon(c)
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	c.Set(fiber.HeaderCacheControl, "no-store")
	c.Set(headerNext, offset(o.Tip.Last))
	if o.Tip.Finished != nil {
		c.Set(headerClosed, "true")
	}
	return nil
}

func setCommon(c *fiber.Ctx) {
	c.Set("Cross-Origin-Resource-Policy", "cross-origin")
	c.Vary(fiber.HeaderAuthorization, "X-Api-Key")
}

// reading is one read of a record.
type reading struct {
	record.Opened
	id     process.ID
	cursor string
	now    bool // offset=now
}

// etag names what lies between two offsets.
func (r *reading) etag(end process.Seq, closed bool) string {
	var b strings.Builder
	b.WriteByte('"')
	b.WriteString(string(r.id))
	b.WriteByte(':')
	b.WriteString(offset(r.After))
	b.WriteByte(':')
	b.WriteString(offset(end))
	if closed {
		b.WriteString(":c")
	}
	b.WriteByte('"')
	return b.String()
}
