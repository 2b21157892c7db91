package e2a

import (
	"net/netip"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/account"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/accounts"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
	"github.com/millrace/millrace/services/gateway/internal/peer"
)

// sent is the response to a request for a code.
type sent struct {
	Message string `json:"message"`
	Code    string `json:"verify_code,omitempty"` // in test mode
}

// sendCode serves POST /v1/tenants, /v1/auth/register and /v1/auth/login: they send a code. A
// user that logs in with an unknown address gets the same response and the same mail as any
// other, so that neither discloses which addresses have accounts.
func (h *Handler) sendCode(status int) fiber.Handler {
	return func(c *fiber.Ctx) error {
		var email string
		if err := body.Decode(c, body.Field{Name: "email", Into: &email}); err != nil {
			return err
		}
		to, err := account.ParseAddress(email)
		if err == nil {
			err = h.Users.Admit(c.UserContext(), h.Client(c))
		}
		if err != nil {
			return err
		}
		code, err := h.Users.SendCode(c.UserContext(), to)
		if err != nil {
			return err
		}
		return body.Write(c, status, sent{"OTP sent", code})
	}
}

// Client returns the address of the client of a request.
func (h *Handler) Client(c *fiber.Ctx) netip.Addr {
	from, _ := netip.AddrFromSlice(c.Context().RemoteIP())
	var forwarded []string
	for _, v := range c.Request().Header.PeekAll(fiber.HeaderXForwardedFor) {
		forwarded = append(forwarded, string(v))
	}
	return peer.Client(from, forwarded, h.Proxies)
}

// verify returns the user that enters a code.
func (h *Handler) verify(c *fiber.Ctx) (accounts.User, error) {
	var email, code string
	if err := body.Decode(c, body.Field{Name: "email", Into: &email}, body.Field{Name: "code", Into: &code}); err != nil {
		return accounts.User{}, err
	}
	if email == "" || code == "" {
		return accounts.User{}, body.Invalid("email and code are required")
	}
	if err := h.Users.Admit(c.UserContext(), h.Client(c)); err != nil {
		return accounts.User{}, err
	}
	return h.Users.Verify(c.UserContext(), email, code)
}

// verified is the response to POST /v1/tenants/verify.
type verified struct {
	TenantID string `json:"tenant_id"`
	issued
	Token string `json:"token"`
}

// verifyTenant serves POST /v1/tenants/verify.
func (h *Handler) verifyTenant(c *fiber.Ctx) error {
	u, err := h.verify(c)
	if err != nil {
		return err
	}
	secret := catalog.NewUserKey()
	k, err := h.Keys.IssueUserKey(c.UserContext(), core.Principal{Tenant: u.Tenant}, secret)
	if err != nil {
		return err
	}
	token, err := h.Users.Token(c.UserContext(), u)
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, verified{u.Tenant, issuedOf(&k, secret), token})
}

// loggedIn is the response to POST /v1/auth/verify-otp.
type loggedIn struct {
	Token  string `json:"token"`
	UserID string `json:"user_id"`
	Email  string `json:"email"`
}

// verifyUser serves POST /v1/auth/verify-otp.
func (h *Handler) verifyUser(c *fiber.Ctx) error {
	u, err := h.verify(c)
	if err != nil {
		return err
	}
	token, err := h.Users.Token(c.UserContext(), u)
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, loggedIn{token, u.Tenant, string(u.Address)})
}

// tenantBody is the response to GET /v1/tenants/me.
type tenantBody struct {
	TenantID  string `json:"tenant_id"`
	Email     string `json:"email"`
	CreatedAt string `json:"created_at"`
	Plan      string `json:"plan"`
}

// tenant serves GET /v1/tenants/me.
func (h *Handler) tenant(c *fiber.Ctx) error {
	u := h.Users.User(auth.From(c))
	return body.Write(c, fiber.StatusOK, tenantBody{u.Tenant, string(u.Address), stamp(u.Created), accounts.Free})
}

// stamp formats a time.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

const keyPrefix = "key_"

// revoke serves DELETE of a key and responds with done.
func (h *Handler) revoke(done fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		id, ok := strings.CutPrefix(c.Params("id"), keyPrefix)
		if !ok {
			return kind.New(kind.NotFound, "revoke key", "", "key not found")
		}
		if err := h.Keys.RevokeUserKey(c.UserContext(), auth.From(c), strings.Clone(id)); err != nil {
			return err
		}
		return done(c)
	}
}
