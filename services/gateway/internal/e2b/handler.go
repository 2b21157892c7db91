package e2b

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/builds"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/envd"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/logs"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/sandboxes"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/secrets"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/snapshots"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/teams"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/templates"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/usage"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/volumes"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/webhooks"
	"github.com/millrace/millrace/services/gateway/internal/e2b/limits"
	"github.com/millrace/millrace/services/gateway/internal/operations"
)

// UploadPath is the path below which files of builds are uploaded with a signed link.
const UploadPath = builds.UploadPath

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
	envd       *envd.Handler
	sandboxes  *sandboxes.Handler
	snapshots  *snapshots.Handler
	logs       *logs.Handler
	usage      *usage.Handler
	templates  *templates.Handler
	tags       *templates.TagHandler
	builds     *builds.Handler
	files      *builds.FileHandler
	teams      *teams.Handler
	volumes    *volumes.Handler
	secrets    *secrets.Handler
	events     *webhooks.EventHandler
	webhooks   *webhooks.Handler
	deliveries *webhooks.DeliveryHandler
}

// New returns the surface.
func New(ops *operations.Operations, cfg Config) *Handler {
	cfg.MaxTimeout = cmp.Or(max(cfg.MaxTimeout, 0), 24*time.Hour)
	cfg.Slog = cmp.Or(cfg.Slog, slog.New(slog.DiscardHandler))
	if cfg.Kick == nil {
		cfg.Kick = func() {}
	}
	return &Handler{
		envd: envd.New(ops.Lifecycle),
		sandboxes: sandboxes.New(sandboxes.Config{
			Lifecycle: ops.Lifecycle, View: ops.Core, Provisioner: ops.Provisioner, Templates: ops.Templates, Snapshots: ops.Snapshots,
			Volumes: ops.Storage, Keys: ops.Accounts, Tokens: ops.Lifecycle, Hosts: ops.Hosts, Sealer: ops.Core.Sealer,
			Domain: cfg.Domain, Issuer: cfg.Issuer, MaxTimeout: cfg.MaxTimeout, Limits: cfg.Limits, Operator: cfg.Operator,
		}),
		snapshots: snapshots.New(ops.Snapshots, ops.Core),
		logs:      logs.New(ops.Procs),
		usage:     usage.New(ops.Lifecycle),
		templates: templates.New(templates.Config{
			Templates: ops.Templates, Builds: ops.Builds, Sandboxes: ops.Lifecycle, Snapshots: ops.Snapshots, View: ops.Core,
		}),
		tags:       templates.NewTags(ops.Templates, ops.Snapshots),
		builds:     builds.New(ops.Builds, ops.Templates, cfg.Kick),
		files:      builds.NewFiles(ops.Builds, ops.Templates, ops.Core, cfg.Slog),
		teams:      teams.New(ops.Accounts),
		volumes:    volumes.New(ops.Storage),
		secrets:    secrets.New(ops.Storage),
		events:     webhooks.NewEvents(ops.Webhooks),
		webhooks:   webhooks.New(ops.Webhooks, cfg.Webhooks),
		deliveries: webhooks.NewDeliveries(ops.Webhooks),
	}
}

// Register adds the control plane's routes, which require an API key's principal.
func (h *Handler) Register(r fiber.Router) {
	r.Post("/sandboxes", h.sandboxes.Create(sandboxes.V1))
	r.Post("/v2/sandboxes", h.sandboxes.Create(sandboxes.V2))
	r.Get("/sandboxes", h.sandboxes.ListV1)
	r.Get("/v2/sandboxes", h.sandboxes.ListV2)
	r.Get("/sandboxes/metrics", h.usage.Newest)
	r.Get("/sandboxes/:id", h.sandboxes.Detail)
	r.Get("/sandboxes/:id/metrics", h.usage.Sandbox)
	r.Delete("/sandboxes/:id", h.sandboxes.Kill)
	r.Post("/sandboxes/:id/connect", h.sandboxes.Connect(true))
	r.Post("/v2/sandboxes/:id/connect", h.sandboxes.Connect(false))
	r.Post("/sandboxes/:id/resume", h.sandboxes.Resume)
	r.Post("/sandboxes/:id/timeout", h.sandboxes.Timeout)
	r.Post("/sandboxes/:id/refreshes", h.sandboxes.Refresh)
	r.Post("/sandboxes/:id/pause", h.sandboxes.Pause)
	r.Put("/sandboxes/:id/network", h.sandboxes.SetNetwork)
	r.Post("/sandboxes/:id/snapshots", h.snapshots.Create)
	r.Post("/sandboxes/:id/fork", h.sandboxes.Fork)
	r.Get("/snapshots", h.snapshots.List)
	r.Get("/sandboxes/:id/logs", h.logs.ListV1)
	r.Get("/v2/sandboxes/:id/logs", h.logs.ListV2)
	r.Get("/envs", h.envd.Env)
	h.registerTeams(r)
	h.registerStores(r)
	h.registerTemplates(r)
	h.registerEvents(r)
}

func (h *Handler) registerTeams(r fiber.Router) {
	r.Get("/api-keys", h.teams.ListKeys)
	r.Post("/api-keys", h.teams.CreateKey)
	r.Delete("/api-keys/:id", h.teams.RevokeKey)
	r.Get("/teams", h.teams.List)
	r.Get("/teams/:id/metrics", h.teams.Metrics)
	r.Get("/teams/:id/metrics/max", h.teams.Maximum)
}

func (h *Handler) registerStores(r fiber.Router) {
	r.Post("/volumes", h.volumes.Create)
	r.Get("/volumes", h.volumes.List)
	r.Get("/volumes/:id", h.volumes.Get)
	r.Delete("/volumes/:id", h.volumes.Delete)
	r.Post("/secrets", h.secrets.Create)
	r.Get("/secrets", h.secrets.List)
	r.Get("/secrets/:id", h.secrets.Get)
	r.Post("/secrets/:id", h.secrets.Update)
	r.Delete("/secrets/:id", h.secrets.Delete)
}

func (h *Handler) registerEvents(r fiber.Router) {
	r.Get("/events/sandboxes", h.events.List)
	r.Get("/events/sandboxes/:id", h.events.Sandbox)
	r.Post("/events/webhooks", h.webhooks.Create)
	r.Get("/events/webhooks", h.webhooks.List)
	r.Get("/events/webhooks/:id", h.webhooks.Get)
	r.Patch("/events/webhooks/:id", h.webhooks.Change)
	r.Delete("/events/webhooks/:id", h.webhooks.Delete)
	r.Get("/events/webhooks/:id/deliveries", h.deliveries.List)
	r.Get("/events/webhooks/:id/deliveries/:delivery", h.deliveries.Get)
	r.Post("/events/webhooks/:id/deliveries/:delivery/redeliver", h.deliveries.Redeliver)
	r.Post("/events/webhooks/:id/redeliver", h.deliveries.Replay)
}

func (h *Handler) registerTemplates(r fiber.Router) {
	r.Post("/v3/templates", h.builds.Request)
	r.Post("/v2/templates", h.builds.Request)
	r.Get("/templates", h.templates.List)
	r.Get("/v2/templates", h.templates.Page)
	r.Get("/templates/aliases/:alias", h.templates.Alias)
	r.Post("/templates/tags", h.tags.Assign)
	r.Delete("/templates/tags", h.tags.Remove)
	r.Get("/templates/:id", h.templates.Get)
	r.Patch("/templates/:id", h.templates.Update)
	r.Patch("/v2/templates/:id", h.templates.Update)
	r.Delete("/templates/:id", h.templates.Delete)
	r.Get("/templates/:id/tags", h.tags.List)
	r.Get("/templates/:id/files/:hash", h.files.Link)
	r.Post("/v2/templates/:id/builds/:build", h.builds.Start)
	r.Get("/templates/:id/builds/:build/status", h.builds.Status)
	r.Get("/templates/:id/builds/:build/logs", h.builds.Logs)
}

// Health serves GET /health if the request names a sandbox, and passes on others.
func (h *Handler) Health(c *fiber.Ctx) error { return h.envd.Health(c) }

// Guard is the middleware that responds with 502 if the sandbox of a data plane request is
// not running.
func (h *Handler) Guard(c *fiber.Ctx) error { return h.envd.Guard(c) }

// EnvdMetrics serves GET /metrics if the request names a sandbox, and passes on others.
func (h *Handler) EnvdMetrics(c *fiber.Ctx) error { return h.envd.Metrics(c) }

// Upload serves PUT [UploadPath]. A signature replaces the key.
func (h *Handler) Upload(c *fiber.Ctx) error { return h.files.Upload(c) }
