package durable

import (
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Headers of the protocol.
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
	poll    time.Duration // timeout of a long-poll
	cycle   time.Duration // lifetime of an SSE connection
}

// New returns the surface of g. It serves its streams with streams.
func New(g record.Gateway, streams *stream.Streams) *Handler {
	return &Handler{core: g, streams: streams, poll: 25 * time.Second, cycle: time.Minute}
}

// Register adds the routes. Authentication must run before them.
func (h *Handler) Register(r fiber.Router) {
	r.Add(fiber.MethodGet, "/v1/streams/:id", h.get)
	r.Add(fiber.MethodHead, "/v1/streams/:id", h.head)
	r.Add(fiber.MethodGet, "/v1/streams/:id/:stream", h.bytes)
	r.Add(fiber.MethodHead, "/v1/streams/:id/:stream", h.bytesHead)
	for _, method := range []string{fiber.MethodPut, fiber.MethodPost, fiber.MethodPatch, fiber.MethodDelete} {
		r.Add(method, "/v1/streams/:id", readOnly)
		r.Add(method, "/v1/streams/:id/:stream", readOnly)
	}
}

func readOnly(c *fiber.Ctx) error {
	c.Set(fiber.HeaderAllow, "GET, HEAD")
	return fiber.NewError(fiber.StatusMethodNotAllowed, "only its host writes a process's record")
}

// Modes of a live read.
const (
	livePoll = "long-poll"
	liveSSE  = "sse"
)

// liveOf returns the requested mode; empty is a catch-up read.
func liveOf(c *fiber.Ctx) (string, error) {
	switch live := c.Query("live"); {
	case live != "" && live != livePoll && live != liveSSE:
		return "", kind.New(kind.Invalid, "read", "", `live: must be "long-poll" or "sse"`)
	case live != "" && c.Query("offset") == "":
		return "", kind.New(kind.Invalid, "read", "", "offset is required with live")
	default:
		return live, nil
	}
}

// get reads stored events, or live ones.
func (h *Handler) get(c *fiber.Ctx) error {
	id, err := record.ProcessID(c, "id")
	if err != nil {
		return err
	}
	position, err := parseOffset(c.Query("offset"))
	if err != nil {
		return err
	}
	live, err := liveOf(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	o, err := record.Open(ctx, h.core, auth.From(c), id, record.Options{Position: position, Follow: live != ""})
	if err != nil {
		return record.WriteError(c, err)
	}
	setCommon(c)
	a := newResponse(c, id, position.Now)
	if live == liveSSE {
		return h.sse(c, id, o, a.cursor)
	}
	defer o.Source.Close()
	return h.messages(ctx, c, a, &o, live != "")
}

func newResponse(c *fiber.Ctx, id process.ID, now bool) response {
	return response{id: id, now: now, cursor: nextCursor(c.Query("cursor"), time.Now())}
}

// head responds with the offset of the record's end.
func (h *Handler) head(c *fiber.Ctx) error {
	id, err := record.ProcessID(c, "id")
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	tip, err := h.core.Tail(ctx, auth.From(c), id)
	if err != nil {
		return err
	}
	return sendHead(c, fiber.MIMEApplicationJSON, offset(tip.Last), tip.Finished != nil)
}

func sendHead(c *fiber.Ctx, ctype, next string, closed bool) error {
	setCommon(c)
	c.Set(fiber.HeaderContentType, ctype)
	c.Set(fiber.HeaderCacheControl, "no-store")
	c.Set(headerNext, next)
	if closed {
		c.Set(headerClosed, "true")
	}
	return nil
}

func setCommon(c *fiber.Ctx) {
	c.Set("Cross-Origin-Resource-Policy", "cross-origin")
	c.Vary(fiber.HeaderAuthorization, "X-Api-Key")
}
