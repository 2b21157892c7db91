package gateway

import (
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/accounts"
	"github.com/millrace/millrace/services/gateway/internal/admin"
	"github.com/millrace/millrace/services/gateway/internal/agents"
	"github.com/millrace/millrace/services/gateway/internal/attachments"
	"github.com/millrace/millrace/services/gateway/internal/audit"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/backendai"
	"github.com/millrace/millrace/services/gateway/internal/builder"
	"github.com/millrace/millrace/services/gateway/internal/bundles"
	"github.com/millrace/millrace/services/gateway/internal/codex"
	"github.com/millrace/millrace/services/gateway/internal/console"
	"github.com/millrace/millrace/services/gateway/internal/conversations"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2a"
	"github.com/millrace/millrace/services/gateway/internal/e2b"
	"github.com/millrace/millrace/services/gateway/internal/family"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/identity"
	"github.com/millrace/millrace/services/gateway/internal/interpreter"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
	"github.com/millrace/millrace/services/gateway/internal/metrics"
	"github.com/millrace/millrace/services/gateway/internal/operations"
	"github.com/millrace/millrace/services/gateway/internal/port"
	"github.com/millrace/millrace/services/gateway/internal/rate"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
	"github.com/millrace/millrace/services/gateway/internal/rotation"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/shares"
	"github.com/millrace/millrace/services/gateway/internal/storage"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/templates"
	"github.com/millrace/millrace/services/gateway/internal/tracecontext"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

const (
	readBuffer  = 64 << 10          // maximum size of a request's head, including cookies and tokens for servers in sandboxes
	readTimeout = time.Minute       // maximum time to read a request
	idleTimeout = 330 * time.Second // SDKs keep connections for 300 s
)

// server is an assembled gateway.
type server struct {
	cfg     *Config
	ops     *operations.Operations
	app     *fiber.App
	streams *stream.Streams
	sockets *websocket.Server // for surfaces with WebSocket connections
	keeper  *attachments.Keeper
	users   *accounts.Users
	books   *books
	bundles *bundles.Bundles
	rotator *rotation.Rotator
	e2a     *e2a.Handler

	conversations *conversations.Conversations
	agents        *agents.Agents

	audit   *audit.Writer
	admin   *admin.Handler
	e2b     *e2b.Handler
	bai     *backendai.Handler
	builds  *builder.Builder
	ports   *port.Handler
	counts  *rate.Counts // of requests, in all families with a limit
	metrics *metrics.Metrics
	issuer  *identity.Handler
	unused  httpconn.UnusedConns

	shares     *shares.Shares
	workspaces workspaceFiles
}

func newServer(cfg *Config, ops *operations.Operations, latencies *metrics.Latencies, local bool) *server {
	streams := stream.New(stream.Config{Log: cfg.Slog, IdleTimeout: idleTimeout})
	sockets := websocket.New(streams)
	builds := builder.New(builder.Config{
		Builds: ops.Builds, Templates: ops.Templates, Bases: ops.Bases, Layers: ops.Snapshots,
		Provisioner: ops.Provisioner, Sandboxes: ops.Lifecycle, Processes: ops.Procs, Keys: ops.Core, Sealer: ops.Core.Sealer,
		Slog: cfg.Slog, Registries: cfg.Registries, ECREndpoint: cfg.ECREndpoint,
	})
	counts := rate.New()
	s := &server{
		cfg: cfg, ops: ops, streams: streams, sockets: sockets, counts: counts,
		keeper: attachments.New(attachments.Config{
			Store: cfg.Log.Attachments(), Sandboxes: ops.Core.View, Slog: cfg.Slog,
			Ends: map[string]attachments.End{codex.Surface: codex.End(record.NewGateway(ops)), conversations.Surface: conversations.End},
		}),
		app: fiber.New(fiber.Config{
			AppName:               "millrace",
			DisableStartupMessage: true,
			CaseSensitive:         true,
			RequestMethods:        port.Methods(),
			ReadBufferSize:        readBuffer,
			ReduceMemoryUsage:     true, // while idle
			ReadTimeout:           readTimeout,
			IdleTimeout:           idleTimeout,
			BodyLimit:             cfg.MaxBody,
			StreamRequestBody:     true, // limitBody limits what is read
			// Otherwise forms of any size would be read into files before limitBody.
			DisablePreParseMultipartForm: true,
			ErrorHandler:                 route.ErrorHandler(cfg.Slog),
			// No WriteTimeout: it would cut whole streams.
		}),
		admin: admin.New(ops.Core, ops.Hosts, cfg.ReadyAfter),
		e2b:   e2b.New(ops, e2b.Config{Domain: cfg.Public.Domain, MaxTimeout: cfg.MaxTimeout, Limits: cfg.Limits, Operator: sandbox.Operator{Allow: cfg.EgressAllow}, Webhooks: sandbox.Operator{Allow: cfg.WebhookAllow}, Issuer: cfg.Public.Issuer, Kick: builds.Kick, Slog: cfg.Slog}),
		bai: backendai.New(backendai.Config{
			Operations: record.NewGateway(ops), Pairs: keyPairs(cfg.KeyPair), Creator: sessionCreator{&creator{ops, cfg.Limits}},
			Runs: interpreter.NewRuns(record.NewGateway(ops)), Log: catalog.SandboxLog{View: cfg.View}, All: cfg.View.Sandboxes, Active: cfg.View.ActiveProcesses, Counts: counts, Streams: streams, Sockets: sockets,
			Ports: ops.Lifecycle, Files: backendai.NewFiles(ops.Lifecycle), MaxTimeout: cfg.MaxTimeout, Version: cfg.Version, Slog: cfg.Slog,
		}),
		users:   newUsers(cfg, ops),
		books:   newBooks(cfg, ops.Core.CallTimeout),
		bundles: bundles.New(ops.Core, cfg.Log.Bundles()),
		audit:   audit.NewWriter(cfg.Log, cfg.Slog),
		builds:  builds,
		ports:   port.New(ops.Lifecycle, streams),
		metrics: metrics.New(metrics.Config{
			Commands: ops.Procs, Log: ops.Core.Log, Hosts: ops.Hosts, Sandboxes: ops.Lifecycle, Webhooks: ops.Webhooks,
			Streams: streams, WebSockets: sockets, Role: cfg.Ops, Latencies: latencies,
		}),
		issuer: identity.New(ops.Accounts, cfg.Public.Issuer),
	}
	s.shares = shares.New(cfg.Log.Shares(), record.NewGateway(ops), cfg.Slog)
	s.workspaces = newWorkspaces(cfg, ops, streams, s.keeper)
	s.conversations, s.agents = s.newConversations(), newAgents(ops)
	s.rotator = rotation.New(s.bundles, rotated{s.conversations}, cfg.Slog)
	s.e2a = e2a.New(e2a.Config{Users: s.users, Keys: ops.Accounts, Proxies: cfg.Users.Proxies})
	s.app.Server().NoDefaultServerHeader = true
	s.app.Server().ConnState = s.unused.Track
	s.middleware()
	s.routes(local)
	return s
}

// tokens checks the tokens of sandboxes and volumes.
type tokens struct {
	*lifecycle.Lifecycle
	*storage.Storage
}

// middleware registers the handlers that every request passes, in this order.
func (s *server) middleware() {
	if names := s.cfg.Public.hosts(); names != (family.Hosts{}) {
		s.app.Use(route.Hosts(names))
	}
	s.app.Use(
		s.markUsed,
		tracecontext.Middleware,
		s.metrics.Count,
		s.recovered,
		requestID,
		backendai.Headers,
		httpconn.RejectFraming,
		s.forwardToPort, // the rest is for our own API
		s.budgetAnswer,
		s.disposeBody, // for all handlers from here on
		cors,
		rejectPath,
	)
}

// forwardToPort forwards requests for the servers in sandboxes to them.
func (s *server) forwardToPort(c *fiber.Ctx) error {
	if route.Part(c).Family != family.Port {
		return c.Next()
	}
	return s.ports.Serve(c, route.Of(c))
}

// markUsed marks the connection as used, and makes appends of the request fail soon if the log
// is unreachable.
func (s *server) markUsed(c *fiber.Ctx) error {
	s.unused.Remove(c.Context().Conn())
	c.SetUserContext(events.Prompt(c.UserContext()))
	return c.Next()
}

// registerOwn adds the routes for probes and operators.
func (s *server) registerOwn(r fiber.Router) {
	s.admin.RegisterProbes(r)
	page := console.New()
	r.Get("/", onlyUnnamed(admin.Index(s.cfg.Version, backendai.Version, page.Page)))
	page.Register(r)
	r.Get(identity.ConfigurationPath, onlyUnnamed(s.issuer.Configuration))
	r.Get(identity.KeysPath, onlyUnnamed(s.issuer.Keys))
	r.Get("/metrics", s.e2b.EnvdMetrics, onlyOperators, s.metrics.Get)
	r.Post("/v1/identity/keys", onlyOperators, s.issuer.Rotate)
	r.Get("/v1/audit", onlyOperators, s.audit.Read)
	r.Get("/v1/hosts", onlyOperators, s.admin.Hosts)
	r.Get("/v1/hosts/:name/undrainable", onlyOperators, s.admin.Undrainable)
	r.Post("/v1/hosts/:name/drain", onlyOperators, s.admin.DrainHost(true))
	r.Post("/v1/hosts/:name/undrain", onlyOperators, s.admin.DrainHost(false))
	admin.NewKeyring(s.ops.Core).Register(r, onlyOperators)
	templates.New(s.ops.Core, s.ops.Templates).Register(r, onlyOperators)
}

// registerPublic adds E2B's routes that require no API key: the probe of a sandbox or of the
// service, and uploads by a signed link.
func (s *server) registerPublic(r fiber.Router) {
	r.Get("/health", s.e2b.Health, admin.Health)
	r.Put(e2b.UploadPath+":tenant/:hash", s.e2b.Upload)
}

// isOperator reports whether p uses a configured key and thus has access to data of no tenant
// and of all.
func isOperator(p core.Principal) bool {
	return p.Tenant == DefaultTenant && p.Sandbox == "" && p.Volume == ""
}

// onlyOperators is middleware that rejects all other principals.
func onlyOperators(c *fiber.Ctx) error {
	if !isOperator(auth.From(c)) {
		return kind.New(kind.Denied, "authorize", "", "operators only")
	}
	return c.Next()
}

// onlyUnnamed limits do to requests that name no sandbox.
func onlyUnnamed(do fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if route.Of(c).Named != "" {
			return c.Next()
		}
		return do(c)
	}
}

// recovered turns a panic into an error response.
func (s *server) recovered(c *fiber.Ctx) error {
	panicked := true
	err := recovery.Do(s.cfg.Slog, "request", func() error {
		err := c.Next()
		panicked = false
		return err
	})
	if panicked {
		c.Context().SetConnectionClose() // the rest of its body must not be read as a request
	}
	return err
}
