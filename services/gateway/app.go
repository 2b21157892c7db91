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
	readBuffer  = 64 << 10          // a request's head: cookies and tokens for servers in sandboxes, too
	readTimeout = time.Minute       // of a whole request
	idleTimeout = 330 * time.Second // SDKs keep connections for 300 s
)

// server is a gateway put together.
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
			ReduceMemoryUsage:     true, // until something is asked
			ReadTimeout:           readTimeout,
			IdleTimeout:           idleTimeout,
			BodyLimit:             cfg.MaxBody,
			StreamRequestBody:     true, // limitBody bounds what is read
			// Forms would be read into files, whatever their size, before limitBody.
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

// middleware is what every request passes, in this order.
func (s *server) middleware() {
	s.app.Use(
		s.asked,
		s.metrics.Count,
		s.recovered,
		requestID,
		refuseFraming,
		s.toPort, // what follows is for our own API
		s.holdAnswer,
		s.leaveBody, // of whoever answers from here on
		cors,
		refusePath,
		s.e2b.Proxy,
	)
}

// toPort has requests for the servers in sandboxes answered by them.
func (s *server) toPort(c *fiber.Ctx) error {
	t := route.Of(c)
	if t.Named == "" || t.Port == route.EnvdPort || t.Port == route.InterpreterPort {
		return c.Next()
	}
	return s.ports.Serve(c, t)
}

// asked takes note that a connection is not silent. What the request stores fails soon
// where nothing can be stored.
func (s *server) asked(c *fiber.Ctx) error {
	s.silent.heard(c.Context().Conn())
	c.SetUserContext(events.Prompt(c.UserContext()))
	return c.Next()
}

// routes adds what anybody may ask, then what only who is known may.
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

// operator reports whether p may see what belongs to no tenant, and to all: the
// bearer of a key that was given by configuration.
func operator(p core.Principal) bool {
	return p.Tenant == DefaultTenant && p.Sandbox == "" && p.Volume == ""
}

// operators is the middleware that lets nobody else pass.
func operators(c *fiber.Ctx) error {
	if !operator(auth.From(c)) {
		return kind.New(kind.Denied, "authorize", "", "this is for operators")
	}
	return c.Next()
}

// unnamed has do answer what is for no sandbox.
func unnamed(do fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if route.Of(c).Named != "" {
			return c.Next()
		}
		return do(c)
	}
}

// recovered turns a panic into an answer.
func (s *server) recovered(c *fiber.Ctx) error {
	panicked := true
	err := recovery.Do(s.cfg.Slog, "request", func() error {
		err := c.Next()
		panicked = false
		return err
	})
	if panicked {
		c.Context().SetConnectionClose() // what is left of its body is no request
	}
	return err
}
