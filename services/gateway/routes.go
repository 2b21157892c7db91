package gateway

import (
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/codex"
	"github.com/millrace/millrace/services/gateway/internal/connect"
	"github.com/millrace/millrace/services/gateway/internal/durable"
	"github.com/millrace/millrace/services/gateway/internal/e2a/catalogue"
	"github.com/millrace/millrace/services/gateway/internal/e2a/secrets"
	"github.com/millrace/millrace/services/gateway/internal/family"
	"github.com/millrace/millrace/services/gateway/internal/files"
	"github.com/millrace/millrace/services/gateway/internal/interpreter"
	"github.com/millrace/millrace/services/gateway/internal/ndjson"
	"github.com/millrace/millrace/services/gateway/internal/openapi"
	"github.com/millrace/millrace/services/gateway/internal/processes"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/sandboxes"
	"github.com/millrace/millrace/services/gateway/internal/screens"
	"github.com/millrace/millrace/services/gateway/internal/tail"
	"github.com/millrace/millrace/services/gateway/internal/writers"
)

// surface is a set of routes that belong to one family.
type surface struct {
	family   family.Name
	register func(r fiber.Router)
}

// surfaces returns all routes.
func (s *server) surfaces() []surface {
	gateway, observer, vms := record.NewGateway(s.ops), record.NewObserver(s.ops), s.newE2ASandboxes()
	return []surface{
		{family.Millrace, s.registerOwn},
		{family.Millrace, openapi.Register},
		{family.E2B, s.registerPublic},
		{family.E2B, s.e2b.Register},
		{family.E2B, connect.New(gateway, s.streams, connect.Config{}).Register},
		{family.E2B, files.New(s.ops.Lifecycle, s.streams).Register},
		{family.E2B, files.NewVolumes(s.ops.Storage, s.streams).Register},
		{family.E2B, interpreter.New(gateway, s.streams).Register},
		{family.Codex, codex.New(codex.Config{
			Operations: gateway, Creator: &creator{s.ops, s.cfg.Limits}, Keeper: s.keeper, Streams: s.streams, Sockets: s.sockets,
			MaxTimeout: s.cfg.MaxTimeout, Retain: int(s.cfg.CodexRetainMB) << 20, Slog: s.cfg.Slog,
		}).Register},
		{family.BackendAI, s.bai.Register},
		{family.E2A, s.e2a.Register},
		{family.E2A, catalogue.Register},
		{family.E2A, secrets.New(s.bundles, s.rotator).Register},
		{family.E2A, s.books.surface(s.cfg.View).Register},
		{family.E2A, s.newE2ADataPlane(vms, gateway).Register},
		{family.E2A, vms.Register},
		{family.E2A, s.newE2ASessions().Register},
		{family.E2A, s.workspaces.Register},
		{family.Millrace, ndjson.New(gateway, s.streams).Register},
		{family.Millrace, processes.New(gateway, s.streams).Register},
		{family.Millrace, screens.New(screens.Config{
			Records: observer, Sandboxes: observer, SandboxLog: s.cfg.Log, Streams: s.streams,
			Frames: s.cfg.Log.KeyFrames(screens.FrameVersion), Folded: s.metrics.Folded,
		}).Register},
		{family.Millrace, sandboxes.New(gateway, s.streams).Register},
		{family.Millrace, s.shares.Register},
		{family.Millrace, writers.New(s.keeper.Store(), s.keeper.ID(), gateway).Register},
		{family.Millrace, durable.New(gateway, s.streams).Register},
		{family.Millrace, tail.New(tail.Config{Log: s.cfg.View, Streams: s.streams, Operator: isOperator}).Register},
	}
}

// routes registers all routes. Requests pass the guards before the handlers.
func (s *server) routes(local bool) {
	if local {
		confined{s.app, family.Millrace}.Get("/metrics", onlyUnnamed(s.metrics.Get)) // without a key
	}
	s.app.Use(s.auditDenial, s.bai.Guard, auth.New(s.ops.Accounts, s.users, tokens{s.ops.Lifecycle, s.ops.Storage}, s.shares), s.limitRate, s.limitBody, s.e2b.Guard)
	for _, x := range s.surfaces() {
		x.register(confined{s.app, x.family})
	}
}

// confined is a router whose handlers run only for requests of a family: the router knows
// neither hosts nor upgrades, so that a path alone may lead to another family's handler.
type confined struct {
	fiber.Router
	family family.Name
}

// Get is a route for GET and HEAD.
func (r confined) Get(path string, do ...fiber.Handler) fiber.Router {
	return r.Router.Get(path, r.confine(do)...)
}

// Head is a route for HEAD.
func (r confined) Head(path string, do ...fiber.Handler) fiber.Router {
	return r.Router.Head(path, r.confine(do)...)
}

// Post is a route for POST.
func (r confined) Post(path string, do ...fiber.Handler) fiber.Router {
	return r.Router.Post(path, r.confine(do)...)
}

// Put is a route for PUT.
func (r confined) Put(path string, do ...fiber.Handler) fiber.Router {
	return r.Router.Put(path, r.confine(do)...)
}

// Patch is a route for PATCH.
func (r confined) Patch(path string, do ...fiber.Handler) fiber.Router {
	return r.Router.Patch(path, r.confine(do)...)
}

// Delete is a route for DELETE.
func (r confined) Delete(path string, do ...fiber.Handler) fiber.Router {
	return r.Router.Delete(path, r.confine(do)...)
}

// Add is a route for a method.
func (r confined) Add(method, path string, do ...fiber.Handler) fiber.Router {
	return r.Router.Add(method, path, r.confine(do)...)
}

// confine returns the handlers of a route, which pass a request of another family on to other
// routes.
func (r confined) confine(do []fiber.Handler) []fiber.Handler {
	out := make([]fiber.Handler, len(do))
	for i, h := range do {
		out[i] = func(c *fiber.Ctx) error {
			if route.Part(c).Family != r.family {
				return c.Next()
			}
			return h(c)
		}
	}
	return out
}
