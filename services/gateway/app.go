package gateway

import (
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/admin"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/builder"
	"github.com/millrace/millrace/services/gateway/internal/connect"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/durable"
	"github.com/millrace/millrace/services/gateway/internal/e2b"
	"github.com/millrace/millrace/services/gateway/internal/files"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/identity"
	"github.com/millrace/millrace/services/gateway/internal/interpreter"
	"github.com/millrace/millrace/services/gateway/internal/metrics"
	"github.com/millrace/millrace/services/gateway/internal/ndjson"
	"github.com/millrace/millrace/services/gateway/internal/port"
	"github.com/millrace/millrace/services/gateway/internal/processes"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/sandboxes"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/tail"
	"github.com/millrace/millrace/services/gateway/internal/templates"
)

const (
	readBuffer  = 64 << 10          // maximum size of a request's head, including cookies and tokens for servers in sandboxes
	readTimeout = time.Minute       // maximum time to read a request
	idleTimeout = 330 * time.Second // SDKs keep connections for 300 s
)

// server is an assembled gateway.
type server struct {
	cfg     *Config
	core    *core.Core
	app     *fiber.App
	streams *stream.Streams
	admin   *admin.Handler
	e2b     *e2b.Handler
	builds  *builder.Builder
	ports   *port.Handler
	metrics *metrics.Metrics
	issuer  *identity.Handler
	silent  silent
}

func newServer(cfg *Config, c *core.Core, local bool) *server {
	streams := stream.New(stream.Config{Log: cfg.Slog, IdleTimeout: idleTimeout})
	builds := builder.New(builder.Config{Core: c, Slog: cfg.Slog, Registries: cfg.Registries, ECREndpoint: cfg.ECREndpoint})
	s := &server{
		cfg: cfg, core: c, streams: streams,
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
			ErrorHandler:                 httperr.Handler(cfg.Slog),
			// No WriteTimeout: it would cut whole streams.
		}),
		admin:   admin.New(c, cfg.ReadyAfter),
		e2b:     e2b.New(c, e2b.Config{Domain: cfg.Domain, MaxTimeout: cfg.MaxTimeout, Limits: cfg.Limits, Operator: sandbox.Operator{Allow: cfg.EgressAllow}, Webhooks: sandbox.Operator{Allow: cfg.WebhookAllow}, Issuer: cfg.Issuer, Kick: builds.Kick, Slog: cfg.Slog}),
		builds:  builds,
		ports:   port.New(c, streams),
		metrics: metrics.New(c, streams),
		issuer:  identity.New(c, cfg.Issuer),
	}
	s.app.Server().NoDefaultServerHeader = true
	s.app.Server().ConnState = s.silent.note
	s.middleware()
	s.routes(local)
	return s
}

// middleware registers the handlers that every request passes, in this order.
func (s *server) middleware() {
	s.app.Use(
		s.asked,
		s.metrics.Count,
		s.recovered,
		requestID,
		refuseFraming,
		s.toPort, // the rest is for our own API
		s.holdAnswer,
		s.leaveBody, // for all handlers from here on
		cors,
		refusePath,
		s.e2b.Proxy,
	)
}

// toPort forwards requests for the servers in sandboxes to them.
func (s *server) toPort(c *fiber.Ctx) error {
	t := route.Of(c)
	if t.Named == "" || t.Port == route.EnvdPort || t.Port == route.InterpreterPort {
		return c.Next()
	}
	return s.ports.Serve(c, t)
}

// asked marks the connection as used, and makes appends of the request fail soon if the log
// is unreachable.
func (s *server) asked(c *fiber.Ctx) error {
	s.silent.heard(c.Context().Conn())
	c.SetUserContext(events.Prompt(c.UserContext()))
	return c.Next()
}

// routes registers the public routes, then those that require authentication.
func (s *server) routes(local bool) {
	s.admin.RegisterProbes(s.app)
	s.app.Get("/", unnamed(admin.Index(s.cfg.Version)))
	if local {
		s.app.Get("/metrics", unnamed(s.metrics.Get))
	}
	s.app.Get(identity.ConfigurationPath, unnamed(s.issuer.Configuration))
	s.app.Get(identity.KeysPath, unnamed(s.issuer.Keys))
	s.app.Put(e2b.UploadPath+":tenant/:hash", s.e2b.Upload)
	s.app.Use(auth.New(s.cfg.View, s.core), s.limitBody, s.e2b.Guard)
	s.app.Get("/metrics", s.e2b.EnvdMetrics, operators, s.metrics.Get)
	s.app.Post("/v1/identity/keys", operators, s.issuer.Rotate)
	s.app.Get("/v1/hosts", operators, s.admin.Hosts)
	s.app.Get("/v1/hosts/:name/held", operators, s.admin.Held)
	templates.New(s.core).Register(s.app, operators)
	s.app.Post("/v1/hosts/:name/drain", operators, s.admin.DrainHost(true))
	s.app.Post("/v1/hosts/:name/undrain", operators, s.admin.DrainHost(false))
	for _, surface := range []interface{ Register(r fiber.Router) }{
		s.e2b,
		connect.New(connect.Over(s.core), s.streams, connect.Config{}),
		files.New(s.core, s.streams),
		files.NewVolumes(s.core, s.streams),
		ndjson.New(s.core, s.streams),
		interpreter.New(s.core, s.streams),
		processes.New(s.core, s.streams),
		sandboxes.New(s.core, s.streams),
		durable.New(s.core, s.streams),
		tail.New(tail.Config{Log: s.cfg.View, Streams: s.streams, Operator: operator}),
	} {
		surface.Register(s.app)
	}
}

// operator reports whether p uses a configured key and thus has access to data of no tenant
// and of all.
func operator(p core.Principal) bool {
	return p.Tenant == DefaultTenant && p.Sandbox == "" && p.Volume == ""
}

// operators is middleware that rejects all other principals.
func operators(c *fiber.Ctx) error {
	if !operator(auth.From(c)) {
		return kind.New(kind.Denied, "authorize", "", "operators only")
	}
	return c.Next()
}

// unnamed limits do to requests that name no sandbox.
func unnamed(do fiber.Handler) fiber.Handler {
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
