package codex

import (
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/attachment"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/attachments"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/codex/backend"
	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
	"github.com/millrace/millrace/services/gateway/internal/codex/session"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

// Surface is the name of the protocol in attachments.
const Surface = "codex"

// A client stops resuming after 45 s, so that a connection that broke silently must be
// detected long before.
const (
	pingInterval = 10 * time.Second
	pongTimeout  = 8 * time.Second
)

const defaultMaxTimeout = 24 * time.Hour

// Sandboxes finds and ends sandboxes.
type Sandboxes interface {
	RequireRunning(ctx context.Context, p core.Principal, id sandbox.ID) (sandbox.State, error)
	DestroySandbox(ctx context.Context, p core.Principal, id sandbox.ID) error
	Abandon(ctx context.Context, id sandbox.ID)
	Hold(id sandbox.ID) (release func(), ok bool)
}

// Operations are the operations of the gateway that sessions use, implemented by record.Gateway.
type Operations interface {
	Sandboxes
	backend.Operations
}

// Config configures the surface.
type Config struct {
	Operations Operations
	Creator    Creator
	Keeper     *attachments.Keeper
	Streams    *stream.Streams
	Sockets    *websocket.Server
	MaxTimeout time.Duration // maximum lifetime of a sandbox; default 24 h
	Retain     int           // bytes of a process's output that process/read returns, the newest; 0: all
	Slog       *slog.Logger
}

// Handler implements the surface. It is safe for concurrent use.
type Handler struct {
	cfg      Config
	backend  *backend.Backend
	endpoint *websocket.Endpoint
}

// New returns the surface.
func New(cfg Config) *Handler {
	cfg.MaxTimeout = cmp.Or(max(cfg.MaxTimeout, 0), defaultMaxTimeout)
	return &Handler{
		cfg: cfg, backend: backend.New(cfg.Operations),
		endpoint: cfg.Sockets.Endpoint(websocket.Options{
			MaxMessage: jsonrpc.MaxMessage, PingInterval: pingInterval, PongTimeout: pongTimeout,
		}),
	}
}

// End returns what ends sessions: it kills their processes, or ends a sandbox of their own.
func End(ops Operations) attachments.End {
	b := backend.New(ops)
	return func(ctx context.Context, s *attachment.Session) error {
		p := core.Principal{Tenant: s.Tenant}
		if s.Owned {
			return ops.DestroySandbox(ctx, p, s.Sandbox)
		}
		return b.End(ctx, p, s.Sandbox, s.ID)
	}
}

// Register adds the routes. The principal must be set before ([auth.From]).
func (h *Handler) Register(r fiber.Router) {
	r.Get("/", h.byToken)
	r.Get("/codex/new", h.inNew)
	r.Get("/codex/:sandbox", h.inSandbox)
}

// byToken serves a session in the sandbox whose token was sent.
func (h *Handler) byToken(c *fiber.Ctx) error {
	p := auth.From(c)
	if p.Sandbox == "" {
		return kind.New(kind.Invalid, "open session", "", "the path must name a sandbox: /codex/<sandbox>, or /codex/new")
	}
	return h.in(c, p, p.Sandbox)
}

// inSandbox serves a session in the sandbox in the path.
func (h *Handler) inSandbox(c *fiber.Ctx) error {
	id, err := sandbox.ParseID(strings.Clone(c.Params("sandbox")))
	if err != nil {
		return err
	}
	return h.in(c, auth.From(c), id)
}

func (h *Handler) in(c *fiber.Ctx, p core.Principal, id sandbox.ID) error {
	policy, err := policyOf(c)
	if err == nil {
		_, err = h.cfg.Operations.RequireRunning(c.UserContext(), p, id)
	}
	if err != nil {
		return err
	}
	return h.serve(c, p, &existing{h: h, p: p, sandbox: id, policy: policy}, id, func() {})
}

// serve upgrades the request and serves a session in a sandbox, which is in use until the connection has
// ended. Then after is called.
func (h *Handler) serve(c *fiber.Ctx, p core.Principal, o session.Opener, id sandbox.ID, after func()) error {
	memory := &budget{b: h.cfg.Streams.Budget(p.Tenant)}
	return h.endpoint.Upgrade(c, p.Tenant, websocket.Handler{
		Drain: websocket.LeaveToServe, // a session that is detached resumes at another gateway
		Serve: func(ctx context.Context, conn *websocket.Conn) error {
			defer after()
			release, _ := h.cfg.Operations.Hold(id)
			defer release()
			return session.Serve(ctx, &transport{conn: conn}, session.Config{Opener: o, Budget: memory, Retain: h.cfg.Retain, Log: h.cfg.Slog})
		},
	})
}

// policyOf returns what the query says about lost connections.
func policyOf(c *fiber.Ctx) (attachment.Policy, error) {
	var p attachment.Policy
	switch c.Query("on_disconnect") {
	case "", "detach":
	case "terminate":
		p.Terminate = true
	default:
		return p, kind.New(kind.Invalid, "open session", "", "on_disconnect must be detach or terminate")
	}
	ttl, err := seconds(c, "detach_timeout", attachment.DefaultTTL, maxDetached)
	p.TTL = ttl
	return p, err
}

// maxDetached is the maximum of detach_timeout.
const maxDetached = 24 * time.Hour

// seconds returns a duration in the query, which is positive and at most most.
func seconds(c *fiber.Ctx, name string, def, most time.Duration) (time.Duration, error) {
	text := c.Query(name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	d := time.Duration(n) * time.Second
	if err != nil || n == 0 || d > most {
		return 0, kind.Newf(kind.Invalid, "open session", "", "%s must be between 1 and %d seconds", name, most/time.Second)
	}
	return d, nil
}

// existing opens sessions in a sandbox that exists.
type existing struct {
	h       *Handler
	p       core.Principal
	sandbox sandbox.ID
	policy  attachment.Policy
}

// Open implements [session.Opener].
func (o *existing) Open(ctx context.Context, resume string) (*session.Services, error) {
	var a *attachments.Attachment
	var err error
	if resume == "" {
		a, err = o.h.cfg.Keeper.Open(ctx, attachment.Session{Tenant: o.p.Tenant, Surface: Surface, Sandbox: o.sandbox, Policy: o.policy})
	} else {
		a, err = o.h.cfg.Keeper.Resume(ctx, o.p.Tenant, resume, func(s *attachment.Session) bool {
			return s.Surface == Surface && s.Sandbox == o.sandbox
		})
	}
	if err != nil {
		return nil, err
	}
	return o.h.backend.Services(o.p, o.sandbox, a), nil
}
