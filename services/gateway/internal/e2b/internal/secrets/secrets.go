package secrets

import (
	"context"
	"encoding/base64"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/paging"
)

// Store stores secrets.
type Store interface {
	CreateSecret(ctx context.Context, p core.Principal, name, value string, meta map[string]string) (catalog.Secret, error)
	UpdateSecret(ctx context.Context, p core.Principal, ref, value string, meta map[string]string) (catalog.Secret, error)
	Secret(ctx context.Context, p core.Principal, ref string) (catalog.Secret, error)
	Secrets(ctx context.Context, p core.Principal) ([]catalog.Secret, error)
	DeleteSecret(ctx context.Context, p core.Principal, ref string) error
}

// Handler serves secrets.
type Handler struct{ store Store }

// New returns a handler.
func New(s Store) *Handler { return &Handler{s} }

// secretBody is E2B's Secret, without the value.
type secretBody struct {
	SecretID       string            `json:"secretID"`
	Name           string            `json:"name"`
	CurrentVersion uint64            `json:"currentVersion"`
	Metadata       map[string]string `json:"metadata"`
	CreatedAt      time.Time         `json:"createdAt"`
	UpdatedAt      time.Time         `json:"updatedAt"`
}

func secretOf(s *catalog.Secret) secretBody {
	b := secretBody{
		SecretID: s.ID, Name: s.Name, CurrentVersion: s.Version, Metadata: s.Metadata,
		CreatedAt: s.Created.UTC(), UpdatedAt: s.Updated.UTC(),
	}
	if b.Metadata == nil {
		b.Metadata = map[string]string{}
	}
	return b
}

// newSecret is NewSecret; an update has no name.
type newSecret struct {
	Name     string            `json:"name"`
	Value    string            `json:"value"`
	Metadata map[string]string `json:"metadata"`
}

// Create serves POST /secrets.
func (h *Handler) Create(c *fiber.Ctx) error {
	var body newSecret
	if err := wire.Decode(c, &body, true); err != nil {
		return err
	}
	s, err := h.store.CreateSecret(c.UserContext(), auth.From(c), body.Name, body.Value, body.Metadata)
	if err != nil {
		return err
	}
	return c.Status(fiber.StatusCreated).JSON(secretOf(&s))
}

// Update serves POST /secrets/:id.
func (h *Handler) Update(c *fiber.Ctx) error {
	ref, err := wire.PathName(c)
	if err != nil {
		return err
	}
	var body newSecret
	if err := wire.Decode(c, &body, true); err != nil {
		return err
	}
	s, err := h.store.UpdateSecret(c.UserContext(), auth.From(c), ref, body.Value, body.Metadata)
	if err != nil {
		return err
	}
	return c.JSON(secretOf(&s))
}

// Get serves GET /secrets/:id.
func (h *Handler) Get(c *fiber.Ctx) error {
	ref, err := wire.PathName(c)
	if err != nil {
		return err
	}
	s, err := h.store.Secret(c.UserContext(), auth.From(c), ref)
	if err != nil {
		return err
	}
	return c.JSON(secretOf(&s))
}

// Delete serves DELETE /secrets/:id.
func (h *Handler) Delete(c *fiber.Ctx) error {
	ref, err := wire.PathName(c)
	if err != nil {
		return err
	}
	if err := h.store.DeleteSecret(c.UserContext(), auth.From(c), ref); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// List lists secrets by name, in pages: a page's token is its last name.
func (h *Handler) List(c *fiber.Ctx) error {
	limit, err := paging.Limit(c)
	if err != nil {
		return err
	}
	after, err := base64.RawURLEncoding.DecodeString(c.Query("nextToken"))
	if err != nil {
		return wire.Invalid("nextToken is invalid")
	}
	all, err := h.store.Secrets(c.UserContext(), auth.From(c))
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(s catalog.Secret) bool { return s.Name <= string(after) })
	if len(all) > limit {
		all = all[:limit]
		c.Set("X-Next-Token", base64.RawURLEncoding.EncodeToString([]byte(all[limit-1].Name)))
	}
	out := make([]secretBody, len(all))
	for i := range all {
		out[i] = secretOf(&all[i])
	}
	return c.JSON(out)
}
