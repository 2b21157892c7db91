package sandboxes

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/limits"
	"github.com/millrace/millrace/services/gateway/internal/provision"
)

// Provisioner creates sandboxes. *provision.Provisioner implements it.
type Provisioner interface {
	KeyedSandbox(ctx context.Context, p core.Principal, by provision.Idempotency) (st sandbox.State, ok bool, err error)
	CreateKeyedSandbox(ctx context.Context, p core.Principal, by provision.Idempotency, req sandbox.Requested) (sandbox.State, error)
}

// Templates are the templates that a sandbox may start from. *templatestore.Store implements it.
type Templates interface {
	FromTemplate(ctx context.Context, p core.Principal, name string, req sandbox.Requested) (sandbox.Requested, error)
}

// Lifecycle are the operations on existing sandboxes. *lifecycle.Lifecycle implements it.
type Lifecycle interface {
	Lookup(ctx context.Context, p core.Principal, id sandbox.ID) (sandbox.State, error)
	Sandboxes(p core.Principal, keep func(*sandbox.State) bool) []sandbox.State
	DestroySandbox(ctx context.Context, p core.Principal, id sandbox.ID) error
	Abandon(ctx context.Context, id sandbox.ID)
}

// Hosts are the hosts that have or had a lease. *hosts.Hosts implements it.
type Hosts interface {
	All(ctx context.Context) []fleet.Host
}

// View waits until it has everything stored before the call. *core.Core implements it.
type View interface {
	Sync(ctx context.Context) error
}

// Outbound checks URLs of tenants. *outbound.Policy implements it.
type Outbound interface {
	Check(ctx context.Context, field, url string) error
}

// Workspaces shows workspaces in sandboxes and stores what has changed. *mounts.Mounts implements it.
type Workspaces interface {
	Mount(ctx context.Context, st *sandbox.State) error
	Flush(ctx context.Context, st *sandbox.State)
}

// Credits decides whether a tenant may create sandboxes.
type Credits interface {
	Afford(ctx context.Context, tenant string) error
}

// Config configures the surface. All fields but Limits are required.
type Config struct {
	Provisioner Provisioner
	Templates   Templates
	Lifecycle   Lifecycle
	Hosts       Hosts
	View        View
	Outbound    Outbound
	Agents      Agents
	Credits     Credits
	Sealer      *seal.Ring // seals headers for persistence backends
	Processes   Processes
	Workspaces  Workspaces
	Limits      limits.Default // of what templates leave open
	Now         func() time.Time
}

// Handler serves the routes. It is safe for concurrent use.
type Handler struct{ Config }

// New returns the surface.
func New(cfg Config) *Handler { return &Handler{cfg} }

// Register adds the routes. The principal must be set before ([auth.From]).
func (h *Handler) Register(r fiber.Router) {
	r.Post("/v1/sandboxes", h.create)
	r.Get("/v1/sandboxes", h.list)
	r.Get("/v1/sandboxes/:id", h.get)
	r.Delete("/v1/sandboxes/:id", h.remove)
}
