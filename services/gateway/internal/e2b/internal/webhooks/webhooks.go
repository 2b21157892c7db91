package webhooks

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/webhook"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
)

// Webhooks stores webhooks.
type Webhooks interface {
	CreateWebhook(ctx context.Context, p core.Principal, w webhook.Webhook, secret string) (catalog.Hook, error)
	Webhook(ctx context.Context, p core.Principal, id webhook.ID) (catalog.Hook, error)
	List(ctx context.Context, p core.Principal) ([]catalog.Hook, error)
	ChangeWebhook(ctx context.Context, p core.Principal, id webhook.ID, secret string, change func(*webhook.Webhook)) (catalog.Hook, error)
	DeleteWebhook(ctx context.Context, p core.Principal, id webhook.ID) error
}

// Handler serves webhooks.
type Handler struct {
	webhooks Webhooks
	operator sandbox.Operator
}

// New returns a handler. The operator may allow URLs with non-public addresses.
func New(w Webhooks, operator sandbox.Operator) *Handler { return &Handler{w, operator} }

// webhookBody is E2B's WebhookDetail, without the secret.
type webhookBody struct {
	ID        webhook.ID     `json:"id"`
	TeamID    string         `json:"teamId"`
	Name      string         `json:"name"`
	CreatedAt time.Time      `json:"createdAt"`
	URL       string         `json:"url"`
	Enabled   bool           `json:"enabled"`
	Events    []webhook.Type `json:"events"`
	Format    string         `json:"format"` // ours, as the fields below
	Batch     int            `json:"batch"`  // maximum number of events per delivery
	Cursor    string         `json:"cursor"` // position up to which all events were delivered
}

func webhookOf(h *catalog.Hook) webhookBody {
	return webhookBody{
		ID: h.ID, TeamID: h.Tenant, Name: h.Name, CreatedAt: h.Created.UTC(), URL: h.URL, Enabled: h.Enabled, Events: h.Types,
		Format: h.Format.String(), Batch: max(h.Batch, 1), Cursor: h.Positions().String(),
	}
}

// webhookChange is E2B's WebhookCreate and WebhookConfiguration: absent fields of an update stay unchanged.
type webhookChange struct {
	Name    *string  `json:"name"`
	URL     *string  `json:"url"`
	Enabled *bool    `json:"enabled"`
	Events  []string `json:"events"`
	Secret  *string  `json:"signatureSecret"`
	Format  *string  `json:"format"` // ours: e2b (default), standard or otlp
	Batch   *int     `json:"batch"`  // ours: maximum number of events per delivery; default 1

	format webhook.Format
	types  []webhook.Type
}

func (h *Handler) decode(c *fiber.Ctx) (webhookChange, error) {
	var b webhookChange
	if err := wire.Decode(c, &b, true); err != nil {
		return b, err
	}
	var err error
	if b.Name != nil {
		err = webhook.CheckName(*b.Name)
	}
	if b.URL != nil && err == nil {
		err = webhook.CheckURL(*b.URL, &h.operator)
	}
	if b.Secret != nil && err == nil {
		err = webhook.CheckSecret(*b.Secret)
	}
	if b.Format != nil && err == nil {
		b.format, err = webhook.ParseFormat(*b.Format)
	}
	if b.Batch != nil && err == nil && *b.Batch < 1 {
		err = wire.Invalid("batch must be from 1 to %d", webhook.MaxBatch)
	}
	if b.Events != nil && err == nil {
		if b.types, err = webhook.ParseTypes(b.Events); err == nil && len(b.types) == 0 {
			err = wire.Invalid("events must name at least one event type")
		}
	}
	return b, err
}

// apply applies the change.
func (b *webhookChange) apply(w *webhook.Webhook) {
	if b.Name != nil {
		w.Name = *b.Name
	}
	if b.URL != nil {
		w.URL = *b.URL
	}
	if b.Enabled != nil {
		w.Enabled = *b.Enabled
	}
	if b.types != nil {
		w.Types = b.types
	}
	if b.Format != nil {
		w.Format = b.format
	}
	if b.Batch != nil {
		w.Batch = *b.Batch
	}
}

// Create serves POST /events/webhooks.
func (h *Handler) Create(c *fiber.Ctx) error {
	b, err := h.decode(c)
	if err != nil {
		return err
	}
	if b.Name == nil || b.URL == nil || b.Events == nil || b.Secret == nil {
		return wire.Invalid("name, url, events and signatureSecret are required")
	}
	w := webhook.Webhook{Enabled: true}
	b.apply(&w)
	made, err := h.webhooks.CreateWebhook(c.UserContext(), auth.From(c), w, *b.Secret)
	if err != nil {
		return err
	}
	return c.Status(fiber.StatusCreated).JSON(webhookOf(&made))
}

// List serves GET /events/webhooks.
func (h *Handler) List(c *fiber.Ctx) error {
	all, err := h.webhooks.List(c.UserContext(), auth.From(c))
	if err != nil {
		return err
	}
	out := make([]webhookBody, len(all))
	for i := range all {
		out[i] = webhookOf(&all[i])
	}
	return c.JSON(out)
}

// Get serves GET /events/webhooks/:id.
func (h *Handler) Get(c *fiber.Ctx) error {
	id, err := webhook.ParseID(c.Params("id"))
	if err != nil {
		return err
	}
	w, err := h.webhooks.Webhook(c.UserContext(), auth.From(c), id)
	if err != nil {
		return err
	}
	return c.JSON(webhookOf(&w))
}

// Change serves PATCH /events/webhooks/:id.
func (h *Handler) Change(c *fiber.Ctx) error {
	id, err := webhook.ParseID(c.Params("id"))
	if err != nil {
		return err
	}
	b, err := h.decode(c)
	if err != nil {
		return err
	}
	secret := ""
	if b.Secret != nil {
		secret = *b.Secret
	}
	w, err := h.webhooks.ChangeWebhook(c.UserContext(), auth.From(c), id, secret, b.apply)
	if err != nil {
		return err
	}
	return c.JSON(webhookOf(&w))
}

// Delete serves DELETE /events/webhooks/:id.
func (h *Handler) Delete(c *fiber.Ctx) error {
	id, err := webhook.ParseID(c.Params("id"))
	if err != nil {
		return err
	}
	if err := h.webhooks.DeleteWebhook(c.UserContext(), auth.From(c), id); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusOK)
}
