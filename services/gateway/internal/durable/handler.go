package durable

import (
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
	r.Add(fiber.MethodGet, "/v1/streams/:id/:stream", h.bytes)
	r.Add(fiber.MethodHead, "/v1/streams/:id/:stream", h.bytesHead)
	for _, method := range []string{fiber.MethodPut, fiber.MethodPost, fiber.MethodPatch, fiber.MethodDelete} {
		r.Add(method, "/v1/streams/:id", readOnly)
		r.Add(method, "/v1/streams/:id/:stream", readOnly)
	}
}

func readOnly(c *fiber.Ctx) error {
	c.Set(fiber.HeaderAllow, "GET, HEAD")
	return fiber.NewError(fiber.StatusMethodNotAllowed, "a process's record is written by its host only")
}

// The modes of a live read.
const (
	livePoll = "long-poll"
	liveSSE  = "sse"
)

// liveOf reads how the client wants what comes; the empty string is not at all.
func liveOf(c *fiber.Ctx) (string, error) {
	switch live := c.Query("live"); {
	case live != "" && live != livePoll && live != liveSSE:
		return "", kind.New(kind.Invalid, "read", "", `live: "long-poll" or "sse"`)
	case live != "" && c.Query("offset") == "":
		return "", kind.New(kind.Invalid, "read", "", "a live read needs an offset")
	default:
		return live, nil
	}
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
	live, err := liveOf(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	o, err := record.Open(ctx, h.core, auth.From(c), id, record.Options{Place: place, Follow: live != ""})
	if err != nil {
		return record.WriteError(c, err)
	}
	setCommon(c)
	a := newAnswer(c, id, place.Now)
	if live == liveSSE {
		return h.sse(c, id, o, a.cursor)
	}
	defer o.Source.Close()
	return h.messages(ctx, c, a, &o, live != "")
}

func newAnswer(c *fiber.Ctx, id process.ID, now bool) answer {
	return answer{id: id, now: now, cursor: nextCursor(c.Query("cursor"), time.Now())}
}

// head tells where the record ends.
func (h *Handler) head(c *fiber.Ctx) error {
	id, err := record.ProcessID(c, "id")
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	tip, err := h.core.Tip(ctx, auth.From(c), id)
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
