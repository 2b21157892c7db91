package dataplane

import (
	"context"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Sandboxes finds sandboxes. *lifecycle.Lifecycle implements it.
type Sandboxes interface {
	FindSandbox(ctx context.Context, p core.Principal, id sandbox.ID) (sandbox.State, error)
}

// Commands starts, finds and ends processes. record.Gateway implements it.
type Commands interface {
	record.Records
	Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt procs.StartOptions) (process.ID, stream.Source, error)
	Find(ctx context.Context, p core.Principal, sbx sandbox.ID, sel procs.Selector) (process.Summary, error)
	Signal(ctx context.Context, p core.Principal, id process.ID, sig int32) error
}

// Config configures the surface. Only Clients and Now may be nil.
type Config struct {
	Sandboxes Sandboxes
	Commands  Commands
	Logs      record.Records // reads logs; that is not a use of the sandbox
	Files     core.FileOpener
	Streams   *stream.Streams
	Clients   Clients          // default: no sandbox has clients
	Now       func() time.Time // default time.Now
}

// Handler serves the routes.
type Handler struct{ Config }

// New returns the surface.
func New(cfg Config) *Handler {
	if cfg.Clients == nil {
		cfg.Clients = noClients{}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
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

const (
	vmPrefix = "sbx_"
	// kept is how long a sandbox is found after its end.
	kept = time.Minute
)

// vmID returns the id of a sandbox for clients.
func vmID(id sandbox.ID) string { return vmPrefix + string(id) }

// find returns the sandbox in the path, also one that has ended recently.
func (h *Handler) find(c *fiber.Ctx) (sandbox.State, error) {
	name, ok := strings.CutPrefix(strings.Clone(c.Params("id")), vmPrefix)
	id, err := sandbox.ParseID(name)
	if err != nil || !ok {
		return sandbox.State{}, core.NoSandbox("")
	}
	st, err := h.Sandboxes.FindSandbox(c.UserContext(), auth.From(c), id)
	if err == nil && st.Over() && h.Now().Sub(st.Ended) > kept {
		return st, core.NoSandbox(id)
	}
	return st, err
}

// used is find for routes that need a sandbox that has not ended. The operations refuse one that is
// paused.
func (h *Handler) used(c *fiber.Ctx) (sandbox.State, error) {
	st, err := h.find(c)
	if err == nil && st.Over() {
		err = core.NoSandbox(st.ID)
	}
	return st, err
}
