package e2b

import (
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/webhook"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/webhooks"
)

func (h *Handler) registerEvents(r fiber.Router) {
	r.Get("/events/sandboxes", h.listEvents)
	r.Get("/events/sandboxes/:id", h.sandboxEvents)
	r.Post("/events/webhooks", h.createWebhook)
	r.Get("/events/webhooks", h.webhooks)
	r.Get("/events/webhooks/:id", h.webhook)
	r.Patch("/events/webhooks/:id", h.changeWebhook)
	r.Delete("/events/webhooks/:id", h.deleteWebhook)
	r.Get("/events/webhooks/:id/deliveries", h.deliveries)
	r.Get("/events/webhooks/:id/deliveries/:delivery", h.delivery)
	r.Post("/events/webhooks/:id/deliveries/:delivery/redeliver", h.redeliver)
	r.Post("/events/webhooks/:id/redeliver", h.replay)
}

const (
	maxEvents     = 100
	defaultEvents = 10
	maxOffset     = 1_000_000
)

// eventsPage parses the requested page of events.
func eventsPage(c *fiber.Ctx) (webhooks.Page, error) {
	var page webhooks.Page
	var err error
	if page.Offset, err = wire.Number(c, "offset", 0, 0, maxOffset); err != nil {
		return page, err
	}
	if page.Limit, err = wire.Number(c, "limit", defaultEvents, 1, maxEvents); err != nil {
		return page, err
	}
	if page.Oldest, err = oldest(c); err != nil {
		return page, err
	}
	page.Types, err = typesOf(c, "types")
	return page, err
}

// oldest parses the order of a list: newest first unless orderAsc is true.
func oldest(c *fiber.Ctx) (bool, error) {
	switch c.Query("orderAsc") {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, wire.Invalid("orderAsc must be true or false")
}

// typesOf parses event types, separated by commas or one per parameter of that name.
func typesOf(c *fiber.Ctx, name string) ([]webhook.Type, error) {
	var names []string
	for _, list := range c.Context().QueryArgs().PeekMulti(name) {
		for s := range strings.SplitSeq(string(list), ",") {
			if s != "" {
				names = append(names, s)
			}
		}
	}
	return webhook.ParseTypes(names)
}

func listed(all []webhook.Event) []webhook.Listed {
	out := make([]webhook.Listed, len(all))
	for i := range all {
		out[i] = all[i].Listed()
	}
	return out
}

func (h *Handler) listEvents(c *fiber.Ctx) error {
	page, err := eventsPage(c)
	if err != nil {
		return err
	}
	all, err := h.ops.Webhooks.Lifecycle(c.UserContext(), auth.From(c), page)
	if err != nil {
		return err
	}
	return c.JSON(listed(all))
}

func (h *Handler) sandboxEvents(c *fiber.Ctx) error {
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return err
	}
	page, err := eventsPage(c)
	if err != nil {
		return err
	}
	all, err := h.ops.Webhooks.SandboxLifecycle(c.UserContext(), auth.From(c), id, page)
	if err != nil {
		return err
	}
	return c.JSON(listed(all))
}

// webhookBody is E2B's WebhookDetail, without the secret.
type webhookBody struct {
	ID        webhook.ID     `json:"id"`
	TeamID    string         `json:"teamId"`
	Name      string         `json:"name"`
	CreatedAt time.Time      `json:"createdAt"`
	URL       string         `json:"url"`
	Enabled   bool           `json:"enabled"`
	Events    []webhook.Type `json:"events"`
}

func webhookOf(h *events.Hook) webhookBody {
	return webhookBody{
		ID: h.ID, TeamID: h.Tenant, Name: h.Name, CreatedAt: h.Created.UTC(), URL: h.URL, Enabled: h.Enabled, Events: h.Types,
	}
}

// webhookChange is E2B's WebhookCreate and WebhookConfiguration: absent fields of an update stay unchanged.
type webhookChange struct {
	Name    *string  `json:"name"`
	URL     *string  `json:"url"`
	Enabled *bool    `json:"enabled"`
	Events  []string `json:"events"`
	Secret  *string  `json:"signatureSecret"`

	types []webhook.Type
}

func (h *Handler) decodeWebhook(c *fiber.Ctx) (webhookChange, error) {
	var b webhookChange
	if err := wire.Decode(c, &b, true); err != nil {
		return b, err
	}
	var err error
	if b.Name != nil {
		err = webhook.CheckName(*b.Name)
	}
	if b.URL != nil && err == nil {
		err = webhook.CheckURL(*b.URL, &h.cfg.Webhooks)
	}
	if b.Secret != nil && err == nil {
		err = webhook.CheckSecret(*b.Secret)
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
}

func (h *Handler) createWebhook(c *fiber.Ctx) error {
	b, err := h.decodeWebhook(c)
	if err != nil {
		return err
	}
	if b.Name == nil || b.URL == nil || b.Events == nil || b.Secret == nil {
		return wire.Invalid("name, url, events and signatureSecret are required")
	}
	w := webhook.Webhook{Enabled: true}
	b.apply(&w)
	made, err := h.ops.Webhooks.CreateWebhook(c.UserContext(), auth.From(c), w, *b.Secret)
	if err != nil {
		return err
	}
	return c.Status(fiber.StatusCreated).JSON(webhookOf(&made))
}

func (h *Handler) webhooks(c *fiber.Ctx) error {
	all, err := h.ops.Webhooks.List(c.UserContext(), auth.From(c))
	if err != nil {
		return err
	}
	out := make([]webhookBody, len(all))
	for i := range all {
		out[i] = webhookOf(&all[i])
	}
	return c.JSON(out)
}

func (h *Handler) webhook(c *fiber.Ctx) error {
	id, err := webhook.ParseID(c.Params("id"))
	if err != nil {
		return err
	}
	w, err := h.ops.Webhooks.Webhook(c.UserContext(), auth.From(c), id)
	if err != nil {
		return err
	}
	return c.JSON(webhookOf(&w))
}

func (h *Handler) changeWebhook(c *fiber.Ctx) error {
	id, err := webhook.ParseID(c.Params("id"))
	if err != nil {
		return err
	}
	b, err := h.decodeWebhook(c)
	if err != nil {
		return err
	}
	secret := ""
	if b.Secret != nil {
		secret = *b.Secret
	}
	w, err := h.ops.Webhooks.ChangeWebhook(c.UserContext(), auth.From(c), id, secret, b.apply)
	if err != nil {
		return err
	}
	return c.JSON(webhookOf(&w))
}

func (h *Handler) deleteWebhook(c *fiber.Ctx) error {
	id, err := webhook.ParseID(c.Params("id"))
	if err != nil {
		return err
	}
	if err := h.ops.Webhooks.DeleteWebhook(c.UserContext(), auth.From(c), id); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusOK)
}
