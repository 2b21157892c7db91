package processes

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// DefaultKeepalive is the keepalive interval of streams whose client requests no other.
const DefaultKeepalive = 30 * time.Second

// controls are the operations on a process.
type controls interface {
	record.Inputs
	Signal(ctx context.Context, p core.Principal, id process.ID, sig int32) error
	Resize(ctx context.Context, p core.Principal, id process.ID, size process.Size) error
}

// gateway is the part of the operations that the surface uses: a record.Gateway.
type gateway interface {
	record.Records
	record.Lister
	controls
}

// Handler serves /v1/processes. It is safe for concurrent use.
type Handler struct {
	core    gateway
	streams *stream.Streams
}

// New returns the surface of g. It serves its streams with streams.
func New(g record.Gateway, streams *stream.Streams) *Handler {
	return &Handler{core: g, streams: streams}
}

// Register adds the routes. The principal must be set before.
func (h *Handler) Register(r fiber.Router) {
	r.Get("/v1/processes", h.list)
	r.Get("/v1/processes/:id", h.get)
	r.Get("/v1/processes/:id/events", h.events)
	r.Post("/v1/processes/:id/signal", h.signal)
	r.Post("/v1/processes/:id/stdin", h.stdin)
	r.Post("/v1/processes/:id/resize", h.resize)
}
