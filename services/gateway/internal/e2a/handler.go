package e2a

import (
	"context"
	"net/netip"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/account"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/services/gateway/internal/accounts"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
)

// Users are the operations of people. *accounts.Users implements it.
type Users interface {
	Admit(ctx context.Context, client netip.Addr) error
	SendCode(ctx context.Context, to account.Address) (code string, err error)
	Verify(ctx context.Context, email, code string) (accounts.User, error)
	User(p core.Principal) accounts.User
	Token(ctx context.Context, of accounts.User) (string, error)
}

// Keys are the operations on API keys. *accounts.Accounts implements it.
type Keys interface {
	IssueUserKey(ctx context.Context, p core.Principal, secret string) (catalog.Key, error)
	AllKeys(ctx context.Context, p core.Principal) ([]catalog.Key, error)
	RevokeUserKey(ctx context.Context, p core.Principal, id string) error
}

// Config configures the surface. Users and Keys are required.
type Config struct {
	Users   Users
	Keys    Keys
	Proxies []netip.Prefix // proxies whose X-Forwarded-For is trusted
}

// Handler serves the routes.
type Handler struct{ Config }

// New returns the surface.
func New(cfg Config) *Handler { return &Handler{cfg} }

// Register adds the routes.
func (h *Handler) Register(r fiber.Router) {
	r.Post("/v1/tenants", h.sendCode(fiber.StatusOK))
	r.Post("/v1/tenants/verify", h.verifyTenant)
	r.Get("/v1/tenants/me", h.tenant)
	r.Post("/v1/tenants/me/api-keys", h.issueTenantKey)
	r.Get("/v1/tenants/me/api-keys", h.listTenantKeys)
	r.Delete("/v1/tenants/me/api-keys/:id", h.revoke(func(c *fiber.Ctx) error { return c.SendStatus(fiber.StatusNoContent) }))

	r.Post("/v1/auth/register", h.sendCode(fiber.StatusCreated))
	r.Post("/v1/auth/login", h.sendCode(fiber.StatusCreated))
	r.Post("/v1/auth/verify-otp", h.verifyUser)
	r.Post("/v1/api-keys", h.issueLiveKey)
	r.Get("/v1/api-keys", h.listLiveKeys)
	r.Delete("/v1/api-keys/:id", h.revoke(func(c *fiber.Ctx) error { return body.Write(c, fiber.StatusOK, body.Status{Status: "revoked"}) }))
}
