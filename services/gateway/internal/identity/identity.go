// Package identity is the surface for the verification of sandboxes' tokens: OpenID Connect
// Discovery 1.0 and the keys (RFC 7517), both public; and key rotation for operators.
package identity

import (
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/identity"
	"github.com/millrace/millrace/services/gateway/internal/accounts"
)

// The public paths.
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeysPath          = "/.well-known/jwks.json"
)

// Handler implements the surface.
type Handler struct {
	accounts *accounts.Accounts
	issuer   string
}

// New returns the surface of an issuer, which is its URL; empty: tokens have no issuer.
func New(a *accounts.Accounts, issuer string) *Handler { return &Handler{a, issuer} }

// Configuration responds with the issuer's metadata, which refers to the keys.
func (h *Handler) Configuration(c *fiber.Ctx) error {
	if h.issuer == "" {
		return fiber.ErrNotFound
	}
	cacheable(c)
	return c.JSON(fiber.Map{
		"issuer": h.issuer, "jwks_uri": h.issuer + KeysPath,
		"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{"RS256"}, "scopes_supported": []string{"openid"},
		"claims_supported": []string{"iss", "sub", "aud", "iat", "exp", "jti", "team_id", "template_id", "sandbox_id"},
	})
}

// Keys responds with the keys that verify tokens.
func (h *Handler) Keys(c *fiber.Ctx) error {
	raw, err := h.accounts.JWKS(c.UserContext())
	if err != nil {
		return err
	}
	cacheable(c)
	c.Set(fiber.HeaderContentType, "application/jwk-set+json")
	return c.Send(raw)
}

func cacheable(c *fiber.Ctx) {
	c.Set(fiber.HeaderCacheControl, "public, max-age="+strconv.Itoa(int(identity.Fresh/time.Second)))
}

// Rotate makes a new signing key.
func (h *Handler) Rotate(c *fiber.Ctx) error {
	if err := h.accounts.RotateSigningKey(c.UserContext()); err != nil {
		return err
	}
	return h.Keys(c)
}
