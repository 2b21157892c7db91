package ndjson

import (
	"context"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// finder finds sandboxes and processes.
type finder interface {
	Sandboxes(p core.Principal, keep func(*sandbox.State) bool) []sandbox.State
	Find(ctx context.Context, p core.Principal, sbx sandbox.ID, sel core.Selector) (process.Summary, error)
	Processes(ctx context.Context, p core.Principal, sbx sandbox.ID, keep func(*process.Summary) bool) ([]process.Summary, error)
}

// controls is what is done to a process.
type controls interface {
	SendInput(ctx context.Context, p core.Principal, id process.ID, data []byte, eof bool) error
	Signal(ctx context.Context, p core.Principal, id process.ID, sig int32) error
	Resize(ctx context.Context, p core.Principal, id process.ID, size process.Size) error
}

// gateway is what the surface needs of the core: a record.Gateway.
type gateway interface {
	finder
	controls
	Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt core.StartOptions) (process.ID, stream.Source, error)
}

// Handler serves /commands. Its methods may be called concurrently.
type Handler struct {
	core    gateway
	streams *stream.Streams
}

// New gives the surface on a core. Its streams are streams'.
func New(c *core.Core, streams *stream.Streams) *Handler {
	return &Handler{core: record.Gateway{Core: c}, streams: streams}
}

// Register adds the routes. The principal must have been found before.
func (h *Handler) Register(r fiber.Router) {
	r.Post("/commands", h.run)
	r.Get("/commands", h.list)
	r.Get("/commands/:pid", h.get)
	r.Post("/commands/:pid/kill", h.kill)
	r.Post("/commands/:pid/stdin", h.stdin)
	r.Post("/commands/:pid/resize", h.resize)
}

// headerKey makes a start that is retried one start.
const headerKey = "Idempotency-Key"

// run starts a command and streams it.
func (h *Handler) run(c *fiber.Ctx) error {
	spec, err := parseCommand(c.Body())
	if err != nil {
		return err
	}
	key := strings.Clone(c.Get(headerKey))
	if err := parseKey(key); err != nil {
		return err
	}
	p := auth.From(c)
	sbx, err := h.sandbox(c, p)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	id, src, err := h.core.Start(ctx, p, sbx, spec, core.StartOptions{IdempotencyKey: key})
	if err != nil {
		return err
	}
	head := stream.Head{ContentType: textenc.ContentTypeNDJSON, Headers: record.StreamHeaders(id, 0)}
	return h.streams.Serve(c, head, src, newEncoder(id, textenc.Keepalive(c.Get(textenc.KeepaliveHeader), 0)))
}
