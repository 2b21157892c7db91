package webhooks

import (
	"context"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/webhook"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/webhooks"
)

// Events are the events of sandboxes' lifecycle.
type Events interface {
	Lifecycle(ctx context.Context, p core.Principal, page webhooks.Page) ([]webhook.Event, error)
	SandboxLifecycle(ctx context.Context, p core.Principal, id sandbox.ID, page webhooks.Page) ([]webhook.Event, error)
}

// EventHandler serves the events that webhooks are about.
type EventHandler struct{ events Events }

// NewEvents returns a handler.
func NewEvents(e Events) *EventHandler { return &EventHandler{e} }

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

func listed(all []webhook.Event) []webhook.Listed {
	out := make([]webhook.Listed, len(all))
	for i := range all {
		out[i] = all[i].Listed()
	}
	return out
}

// List serves GET /events/sandboxes.
func (h *EventHandler) List(c *fiber.Ctx) error {
	page, err := eventsPage(c)
	if err != nil {
		return err
	}
	all, err := h.events.Lifecycle(c.UserContext(), auth.From(c), page)
	if err != nil {
		return err
	}
	return c.JSON(listed(all))
}

// Sandbox serves GET /events/sandboxes/:id.
func (h *EventHandler) Sandbox(c *fiber.Ctx) error {
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return err
	}
	page, err := eventsPage(c)
	if err != nil {
		return err
	}
	all, err := h.events.SandboxLifecycle(c.UserContext(), auth.From(c), id, page)
	if err != nil {
		return err
	}
	return c.JSON(listed(all))
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
