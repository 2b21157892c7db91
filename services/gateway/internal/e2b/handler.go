package e2b

import (
	"log/slog"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/limits"
	"github.com/millrace/millrace/services/gateway/internal/operations"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// Config configures the control plane. A zero field means its default.
type Config struct {
	Domain     string           // domain of sandboxes' hosts, returned to clients; empty: null, and clients use their own
	Issuer     string           // URL of the issuer of sandboxes' identity tokens; empty: no tokens
	MaxTimeout time.Duration    // maximum timeout of a sandbox; default 24 h
	Limits     limits.Default   // of a sandbox that requests none
	Operator   sandbox.Operator // allows proxies on non-public addresses
	Webhooks   sandbox.Operator // allows webhooks on non-public addresses
	Kick       func()           // called when a build is requested; nil: the build is found by polling
	Slog       *slog.Logger     // default: none
}

// Handler is the surface. It has no state.
type Handler struct {
	ops *operations.Operations
	cfg Config
}

// New returns the surface.
func New(ops *operations.Operations, cfg Config) *Handler {
	if cfg.MaxTimeout <= 0 {
		cfg.MaxTimeout = 24 * time.Hour
	}
	if cfg.Kick == nil {
		cfg.Kick = func() {}
	}
	if cfg.Slog == nil {
		cfg.Slog = slog.New(slog.DiscardHandler)
	}
	return &Handler{ops: ops, cfg: cfg}
}

// Register adds the control plane's routes, which require an API key's principal.
func (h *Handler) Register(r fiber.Router) {
	r.Get("/api-keys", h.listKeys)
	r.Post("/api-keys", h.createKey)
	r.Delete("/api-keys/:id", h.revokeKey)
	r.Post("/sandboxes", h.create(defaultsV1))
	r.Post("/v2/sandboxes", h.create(defaultsV2))
	r.Get("/sandboxes", h.listV1)
	r.Get("/v2/sandboxes", h.listV2)
	r.Get("/sandboxes/metrics", h.newestMetrics)
	r.Get("/sandboxes/:id", h.detail)
	r.Get("/sandboxes/:id/metrics", h.sandboxMetrics)
	r.Delete("/sandboxes/:id", h.kill)
	r.Post("/sandboxes/:id/connect", h.connect(true))
	r.Post("/v2/sandboxes/:id/connect", h.connect(false))
	r.Post("/sandboxes/:id/resume", h.resume)
	r.Post("/sandboxes/:id/timeout", h.timeout)
	r.Post("/sandboxes/:id/refreshes", h.refresh)
	r.Post("/sandboxes/:id/pause", h.pause)
	r.Put("/sandboxes/:id/network", h.setNetwork)
	r.Post("/sandboxes/:id/snapshots", h.snapshot)
	r.Post("/sandboxes/:id/fork", h.fork)
	r.Get("/snapshots", h.snapshots)
	r.Get("/sandboxes/:id/logs", h.logsV1)
	r.Get("/v2/sandboxes/:id/logs", h.logsV2)
	r.Get("/envs", h.envs)
	r.Get("/teams", h.teams)
	r.Get("/teams/:id/metrics", h.teamMetrics)
	r.Get("/teams/:id/metrics/max", h.teamMaximum)
	h.registerStores(r)
	h.registerTemplates(r)
	h.registerEvents(r)
}

func (h *Handler) registerStores(r fiber.Router) {
	r.Post("/volumes", h.createVolume)
	r.Get("/volumes", h.listVolumes)
	r.Get("/volumes/:id", h.volume)
	r.Delete("/volumes/:id", h.deleteVolume)
	r.Post("/secrets", h.createSecret)
	r.Get("/secrets", h.secrets)
	r.Get("/secrets/:id", h.secret)
	r.Post("/secrets/:id", h.updateSecret)
	r.Delete("/secrets/:id", h.deleteSecret)
}

func (h *Handler) registerTemplates(r fiber.Router) {
	r.Post("/v3/templates", h.requestBuild)
	r.Post("/v2/templates", h.requestBuild)
	r.Get("/templates", h.listTemplates)
	r.Get("/v2/templates", h.pageTemplates)
	r.Get("/templates/aliases/:alias", h.templateAlias)
	r.Post("/templates/tags", h.assignTags)
	r.Delete("/templates/tags", h.removeTags)
	r.Get("/templates/:id", h.template)
	r.Patch("/templates/:id", h.updateTemplate)
	r.Patch("/v2/templates/:id", h.updateTemplate)
	r.Delete("/templates/:id", h.deleteTemplate)
	r.Get("/templates/:id/tags", h.tags)
	r.Get("/templates/:id/files/:hash", h.filesLink)
	r.Post("/v2/templates/:id/builds/:build", h.startBuild)
	r.Get("/templates/:id/builds/:build/status", h.buildStatus)
	r.Get("/templates/:id/builds/:build/logs", h.buildLogs)
}

// pathSandbox returns the sandbox in the path, as of the request or later. It is NotFound unless
// it is running or paused: clients have no other phase.
func (h *Handler) pathSandbox(c *fiber.Ctx, p core.Principal) (sandbox.State, error) {
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return sandbox.State{}, err
	}
	st, err := h.ops.Lifecycle.Lookup(c.UserContext(), p, id)
	if err == nil && !st.IsRunning() && !st.InPause() {
		return st, kind.New(kind.NotFound, "find sandbox", string(id), "sandbox not found")
	}
	return st, err
}
