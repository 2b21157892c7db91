package sessions

import (
	"context"
	"log/slog"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/frame"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/conversations"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
	"github.com/millrace/millrace/services/gateway/internal/e2a/vmid"
	"github.com/millrace/millrace/services/gateway/internal/sessiontoken"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

// Conversations are the operations that the surface serves. *conversations.Conversations implements it.
type Conversations interface {
	Create(ctx context.Context, p core.Principal, terms conversation.Terms, a conversations.Access) (conversations.Session, error)
	Resume(ctx context.Context, p core.Principal, id conversation.ID, a conversations.Access) (conversations.Session, error)
	Check(token string) (sessiontoken.Claims, bool)
	Find(ctx context.Context, id conversation.ID) (conversation.State, error)
	Attach(ctx context.Context, id conversation.ID) (*conversations.Client, error)
}

// URLs checks the addresses of requests. *outbound.Policy implements it.
type URLs interface {
	// Check returns Invalid unless a URL is allowed.
	Check(ctx context.Context, field, url string) error
}

// Config configures the surface. All fields are required.
type Config struct {
	Conversations Conversations
	Sockets       *websocket.Server
	Outbound      URLs                    // checks the URLs of a model and of a persistence backend
	Sealer        *seal.Ring              // seals headers for persistence backends
	Base          func(*fiber.Ctx) string // base of the URLs at which clients connect
	Slog          *slog.Logger
}

// Handler implements the surface. It is safe for concurrent use.
type Handler struct {
	cfg      Config
	endpoint *websocket.Endpoint
}

// New returns the surface.
func New(cfg Config) *Handler {
	return &Handler{cfg: cfg, endpoint: cfg.Sockets.Endpoint(websocket.Options{
		MaxMessage: frame.MaxFromClient, AnyOrigin: true, PingInterval: pingInterval,
	})}
}

// Register adds the routes.
func (h *Handler) Register(r fiber.Router) {
	r.Post("/v1/sessions", h.create)
	r.Post("/v1/sessions/resume", h.resume)
	r.Get("/v1/sessions/:id/ws", h.connect)
}

// created is the response to POST /v1/sessions.
type created struct {
	ID         string `json:"chat_session_id"`
	JWT        string `json:"jwt"`
	ConnectURL string `json:"connect_url"`
	ExpiresAt  string `json:"expires_at"`
	VM         string `json:"vm_id"`
}

// resumed is the response to POST /v1/sessions/resume.
type resumed struct {
	created
	From from `json:"resumed_from"`
}

type from struct {
	Status conversation.Status `json:"previous_status"`
}

func createdOf(s *conversations.Session) created {
	return created{
		ID: string(s.ID), JWT: s.JWT, ConnectURL: s.Token.Base + "/v1/sessions/" + string(s.ID) + "/ws",
		ExpiresAt: s.Token.Expires.UTC().Format(time.RFC3339), VM: vmid.Of(s.Sandbox),
	}
}

// create serves POST /v1/sessions.
func (h *Handler) create(c *fiber.Ctx) error {
	raw, err := body.Read(c)
	if err != nil {
		return err
	}
	req, err := parseCreate(raw, func(field, url string) error {
		return h.cfg.Outbound.Check(c.UserContext(), field, url)
	})
	if err != nil {
		return err
	}
	p := auth.From(c)
	req.Terms.Persistence, err = sandbox.SealPersistence(h.cfg.Sealer, p.Tenant, req.Persistence.url, req.Persistence.auth)
	if err != nil {
		return err
	}
	s, err := h.cfg.Conversations.Create(c.UserContext(), p, req.Terms, conversations.Access{TTL: req.TTL, Base: h.cfg.Base(c)})
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusCreated, createdOf(&s))
}

// resume serves POST /v1/sessions/resume.
func (h *Handler) resume(c *fiber.Ctx) error {
	raw, err := body.Read(c)
	if err != nil {
		return err
	}
	id, ttl, err := parseResume(raw)
	if err != nil {
		return err
	}
	s, err := h.cfg.Conversations.Resume(c.UserContext(), auth.From(c), id, conversations.Access{TTL: ttl, Base: h.cfg.Base(c)})
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, resumed{createdOf(&s), from{s.Previous}})
}
