package ndjson

import (
	"context"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// finder finds sandboxes and processes.
type finder interface {
	record.Lister
	Sandboxes(p core.Principal, keep func(*sandbox.State) bool) []sandbox.State
	Find(ctx context.Context, p core.Principal, sbx sandbox.ID, sel procs.Selector) (process.Summary, error)
}

// controls acts on a process.
type controls interface {
	record.Inputs
	Signal(ctx context.Context, p core.Principal, id process.ID, sig int32) error
	Resize(ctx context.Context, p core.Principal, id process.ID, size process.Size) error
}

// gateway is the part of the operations that the surface uses, implemented by record.Gateway.
type gateway interface {
	finder
	controls
	record.Records
	Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt procs.StartOptions) (process.ID, stream.Source, error)
}

// Handler serves /commands. Its methods may be called concurrently.
type Handler struct {
	core    gateway
	streams *stream.Streams
}

// New returns the surface of g. It serves its streams with streams.
func New(g record.Gateway, streams *stream.Streams) *Handler {
	return &Handler{core: g, streams: streams}
}

// Register adds the routes. Authentication must run before them.
func (h *Handler) Register(r fiber.Router) {
	r.Post("/commands", h.run)
	r.Get("/commands", h.list)
	r.Get("/commands/:pid", h.get)
	r.Add(fiber.MethodGet, "/commands/:pid/stream", h.resume)
	r.Post("/commands/:pid/kill", h.kill)
	r.Post("/commands/:pid/stdin", h.stdin)
	r.Post("/commands/:pid/resize", h.resize)
}

// headerKey is the header that makes repeated starts one start.
const headerKey = "Idempotency-Key"

// run starts a command and streams it. A retry with the same Idempotency-Key streams the
// same command; skip omits the lines that the client has.
func (h *Handler) run(c *fiber.Ctx) error {
	body, err := record.Body(c)
	if err != nil {
		return err
	}
	spec, err := parseCommand(body)
	if err != nil {
		return err
	}
	key := strings.Clone(c.Get(headerKey))
	if err := parseKey(key); err != nil {
		return err
	}
	skip, err := parseSkip(c)
	if err != nil {
		return err
	}
	p := auth.From(c)
	sbx, err := h.sandbox(c, p)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	id, src, err := h.core.Start(ctx, p, sbx, spec, procs.StartOptions{IdempotencyKey: key})
	if err != nil {
		return err
	}
	return h.serve(c, id, src, skip)
}

// resume streams an existing command from its first line, without the lines that the
// client has.
func (h *Handler) resume(c *fiber.Ctx) error {
	skip, err := parseSkip(c)
	if err != nil {
		return err
	}
	s, err := h.process(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	o, err := record.Open(ctx, h.core, auth.From(c), s.ID, record.Options{Follow: true})
	if err != nil {
		return record.WriteError(c, err)
	}
	return h.serve(c, s.ID, o.Source, skip)
}

func (h *Handler) serve(c *fiber.Ctx, id process.ID, src stream.Source, skip int) error {
	head := stream.Head{ContentType: textenc.ContentTypeNDJSON, Headers: record.StreamHeaders(id, 0)}
	return h.streams.Serve(c, head, src, newEncoder(id, textenc.Keepalive(c.Get(textenc.KeepaliveHeader), 0), skip))
}

// parseSkip parses the number of lines that the client has.
func parseSkip(c *fiber.Ctx) (int, error) {
	v := c.Query("skip")
	if v == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil {
		return 0, invalid("skip: must be a number of lines")
	}
	return int(n), nil
}
