package screens

import (
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Access determines the principal on whose behalf a request reads. Its errors are sent to the
// client.
type Access interface {
	// Process returns the principal of a request that reads a process.
	Process(c *fiber.Ctx, id process.ID) (core.Principal, error)
	// Sandbox returns the principal of a request that reads a sandbox.
	Sandbox(c *fiber.Ctx, id sandbox.ID) (core.Principal, error)
}

// byKey is the Access of requests with an API key.
type byKey struct{}

func (byKey) Process(c *fiber.Ctx, _ process.ID) (core.Principal, error) { return auth.From(c), nil }
func (byKey) Sandbox(c *fiber.Ctx, _ sandbox.ID) (core.Principal, error) { return auth.From(c), nil }

// Config configures a Handler. Access, Cache, Frames and Folded may be zero.
type Config struct {
	Records    record.Records
	Sandboxes  Sandboxes
	SandboxLog SandboxLog
	Streams    *stream.Streams
	Access     Access          // default: the principal of the request
	Cache      int             // maximum size of the key frames in memory in bytes; default 64 MiB
	Frames     Frames          // key frames that gateways share; nil: none
	Folded     func(bytes int) // called for output that is folded; nil: none
}

// Handler serves screens. It is safe for concurrent use.
type Handler struct {
	cfg     Config
	folds   *folds
	hubs    hubs
	indexes *indexes
}

// New returns the surface.
func New(cfg Config) *Handler {
	if cfg.Access == nil {
		cfg.Access = byKey{}
	}
	if cfg.Cache <= 0 {
		cfg.Cache = defaultCache
	}
	h := &Handler{cfg: cfg, folds: newFolds(cfg.Records, cfg.Cache), indexes: newIndexes(cfg.Records)}
	h.folds.stored = newStored(cfg.Frames, h.folds.cache, cfg.Streams.Log())
	if cfg.Folded != nil {
		h.folds.folded = cfg.Folded
	}
	h.hubs.folds, h.hubs.log = h.folds, cfg.Streams.Log()
	return h
}

// Register adds the routes. The principal must be set before.
func (h *Handler) Register(r fiber.Router) {
	r.Get("/v1/processes/:id/screen", h.screen)
	r.Get("/v1/processes/:id/screen/live", h.live)
	r.Get("/v1/processes/:id/text", h.text)
	r.Get("/v1/processes/:id/timeline", h.timeline)
	r.Get("/v1/processes/:id/search", h.search)
	r.Get("/v1/processes/:id/export.cast", h.export)
	r.Get("/v1/timeline/:sandbox", h.sandboxTimeline)
}

// target returns the process of a request, and on whose behalf it is read.
func (h *Handler) target(c *fiber.Ctx) (core.Principal, process.ID, error) {
	id, err := record.ProcessID(c, "id")
	if err != nil {
		return core.Principal{}, "", err
	}
	p, err := h.cfg.Access.Process(c, id)
	return p, id, err
}

// seq parses a seq of the query; absent is 0.
func seq(c *fiber.Ctx, name string) (process.Seq, error) {
	v := c.Query(name)
	if v == "" {
		return 0, nil
	}
	return record.ParseSeq(v)
}

// screen responds with the screen after an event, by default the last.
func (h *Handler) screen(c *fiber.Ctx) error {
	p, id, err := h.target(c)
	if err != nil {
		return err
	}
	at, err := seq(c, "seq")
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	f, err := h.folds.at(ctx, p, id, at)
	if err != nil {
		return record.WriteError(c, err)
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSONCharsetUTF8)
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.Send(frameOf(f, nil).screen())
}

// number parses a number of the query between 1 and most.
func number(c *fiber.Ctx, name string, otherwise, most int) (int, error) {
	v := c.Query(name)
	if v == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(strings.Clone(v))
	if err != nil || n < 1 || n > most {
		return 0, kind.Newf(kind.Invalid, "parse", "", "%s: must be a number from 1 to %d", name, most)
	}
	return n, nil
}
