package dataplane

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Sandboxes finds the sandbox in the path of a request, also one that has ended recently.
// *sandboxes.Handler implements it.
type Sandboxes interface {
	Find(c *fiber.Ctx) (sandbox.State, error)
}

// Commands starts, finds and ends processes. record.Gateway implements it.
type Commands interface {
	record.Records
	Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt procs.StartOptions) (process.ID, stream.Source, error)
	Find(ctx context.Context, p core.Principal, sbx sandbox.ID, sel procs.Selector) (process.Summary, error)
	Signal(ctx context.Context, p core.Principal, id process.ID, sig int32) error
}

// Mounts mounts the workspaces of sandboxes. *mounts.Mounts implements it.
type Mounts interface {
	Mount(ctx context.Context, st *sandbox.State) error
}

// Config configures the surface. Only Clients, Agents and Mounts may be nil.
type Config struct {
	Sandboxes Sandboxes
	Commands  Commands
	Logs      record.Records // reads logs; that is not a use of the sandbox
	Files     core.FileOpener
	Streams   *stream.Streams
	Mounts    Mounts  // default: no sandbox has a workspace
	Clients   Clients // default: no sandbox has clients
	Agents    Agents  // default: no sandbox has an agent
}

// Handler serves the routes.
type Handler struct{ Config }

// New returns the surface.
func New(cfg Config) *Handler {
	if cfg.Clients == nil {
		cfg.Clients = noClients{}
	}
	if cfg.Agents == nil {
		cfg.Agents = noAgents{}
	}
	return &Handler{cfg}
}

// Register adds the routes. The server must leave the body of a POST of a file unread.
func (h *Handler) Register(r fiber.Router) {
	const at = "/v1/sandboxes/:id"
	r.Post(at+"/exec", h.exec)
	r.Get(at+"/files", withStatus(h.download))
	r.Post(at+"/files", withStatus(h.upload))
	r.Get(at+"/logs", h.logs)
	r.Post(at+"/cancel", h.cancel)
}

// used finds the sandbox for routes that need one that has not ended. The operations refuse one that is
// paused.
func (h *Handler) used(c *fiber.Ctx) (sandbox.State, error) {
	st, err := h.Sandboxes.Find(c)
	if err == nil && st.Over() {
		err = core.NoSandbox(st.ID)
	}
	if err == nil && h.Mounts != nil && st.IsRunning() {
		err = h.Mounts.Mount(c.UserContext(), &st)
	}
	return st, err
}
