package e2a

import (
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/services/gateway/internal/accounts"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
)

// issued is a key that was issued at a tenant's routes, with its secret.
type issued struct {
	KeyID     string `json:"key_id"`
	Prefix    string `json:"prefix"`
	APIKey    string `json:"api_key"`
	PlanTier  string `json:"plan_tier"`
	CreatedAt string `json:"created_at"`
}

func issuedOf(k *catalog.Key, secret string) issued {
	return issued{keyPrefix + k.ID, k.Hint, secret, accounts.Free, stamp(k.Issued)}
}

// issueTenantKey serves POST /v1/tenants/me/api-keys.
func (h *Handler) issueTenantKey(c *fiber.Ctx) error {
	secret := catalog.NewUserKey()
	k, err := h.Keys.IssueUserKey(c.UserContext(), auth.From(c), secret)
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, issuedOf(&k, secret))
}

// issuedLive is a key that was issued at a user's routes, with its secret.
type issuedLive struct {
	KeyID  string `json:"key_id"`
	Key    string `json:"key"`
	Prefix string `json:"prefix"`
}

// issueLiveKey serves POST /v1/api-keys.
func (h *Handler) issueLiveKey(c *fiber.Ctx) error {
	secret := catalog.NewLiveKey()
	k, err := h.Keys.IssueUserKey(c.UserContext(), auth.From(c), secret)
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusCreated, issuedLive{keyPrefix + k.ID, secret, k.Hint})
}

// listed is a key in a list.
type listed struct {
	KeyID     string `json:"key_id"`
	Prefix    string `json:"prefix"`
	PlanTier  string `json:"plan_tier"`
	Revoked   bool   `json:"revoked"`
	CreatedAt string `json:"created_at"`
}

func (h *Handler) list(c *fiber.Ctx) ([]listed, error) {
	all, err := h.Keys.AllKeys(c.UserContext(), auth.From(c))
	out := make([]listed, len(all))
	for i := range all {
		k := &all[i]
		out[i] = listed{keyPrefix + k.ID, k.Hint, accounts.Free, k.Revoked, stamp(k.Issued)}
	}
	return out, err
}

// listTenantKeys serves GET /v1/tenants/me/api-keys.
func (h *Handler) listTenantKeys(c *fiber.Ctx) error {
	all, err := h.list(c)
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, struct {
		Keys []listed `json:"keys"`
	}{all})
}

// listLiveKeys serves GET /v1/api-keys.
func (h *Handler) listLiveKeys(c *fiber.Ctx) error {
	all, err := h.list(c)
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, struct {
		Keys []listed `json:"api_keys"`
	}{all})
}
