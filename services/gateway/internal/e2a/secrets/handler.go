package secrets

import (
	"context"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/bundle"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
	"github.com/millrace/millrace/services/gateway/internal/e2a/vmid"
)

// Bundles are the operations on secret bundles. *bundles.Bundles implements it.
type Bundles interface {
	Create(ctx context.Context, p core.Principal, name string, values map[string]string) (bundle.Head, error)
	List(ctx context.Context, p core.Principal) ([]bundle.Head, error)
	Get(ctx context.Context, p core.Principal, name string) (bundle.Head, error)
	Replace(ctx context.Context, p core.Principal, name string, values map[string]string) (bundle.Head, error)
	Delete(ctx context.Context, p core.Principal, name string) error
}

// Rotator gives values to running conversations. *rotation.Rotator implements it.
type Rotator interface {
	// Rotate returns the sandboxes that do not have the values of a bundle after a while.
	Rotate(ctx context.Context, p core.Principal, name string) (pending []sandbox.ID, err error)
}

// Handler serves the routes.
type Handler struct {
	bundles Bundles
	rotator Rotator
}

// New returns the surface of b.
func New(b Bundles, r Rotator) *Handler { return &Handler{b, r} }

// Register adds the routes.
func (h *Handler) Register(r fiber.Router) {
	r.Post("/v1/tenants/me/secrets", h.create)
	r.Get("/v1/tenants/me/secrets", h.list)
	r.Get("/v1/tenants/me/secrets/:name", h.get)
	r.Put("/v1/tenants/me/secrets/:name", h.replace)
	r.Delete("/v1/tenants/me/secrets/:name", h.remove)
}

// created is the response to POST.
type created struct {
	Name      bundle.Name `json:"name"`
	KeyNames  []string    `json:"key_names"`
	CreatedAt string      `json:"created_at"`
}

// replaced is the response to PUT.
type replaced struct {
	Name      bundle.Name `json:"name"`
	KeyNames  []string    `json:"key_names"`
	RotatedAt string      `json:"last_rotated_at"`
	Pending   []string    `json:"pending,omitempty"` // sandboxes that do not have the values yet
}

// listed is a bundle in the responses to GET.
type listed struct {
	created
	RotatedAt string `json:"last_rotated_at"`
}

func createdOf(h *bundle.Head) created { return created{h.Name, h.Keys, stamp(h.Created)} }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (h *Handler) create(c *fiber.Ctx) error {
	var name string
	var v values
	if err := body.Decode(c, body.Field{Name: "name", Into: &name}, v.field()); err != nil {
		return err
	}
	head, err := h.bundles.Create(c.UserContext(), auth.From(c), name, v)
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusCreated, createdOf(&head))
}

func (h *Handler) list(c *fiber.Ctx) error {
	all, err := h.bundles.List(c.UserContext(), auth.From(c))
	if err != nil {
		return err
	}
	out := make([]listed, len(all))
	for i := range all {
		out[i] = listed{createdOf(&all[i]), stamp(all[i].Rotated)}
	}
	return body.Write(c, fiber.StatusOK, struct {
		Bundles []listed `json:"bundles"`
	}{out})
}

func (h *Handler) get(c *fiber.Ctx) error {
	head, err := h.bundles.Get(c.UserContext(), auth.From(c), nameOf(c))
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, listed{createdOf(&head), stamp(head.Rotated)})
}

func (h *Handler) replace(c *fiber.Ctx) error {
	var v values
	if err := body.Decode(c, v.field()); err != nil {
		return err
	}
	head, err := h.bundles.Replace(c.UserContext(), auth.From(c), nameOf(c), v)
	if err != nil {
		return err
	}
	late, err := h.rotator.Rotate(c.UserContext(), auth.From(c), string(head.Name))
	if err != nil {
		return err
	}
	out := replaced{Name: head.Name, KeyNames: head.Keys, RotatedAt: stamp(head.Rotated)}
	for _, id := range late {
		out.Pending = append(out.Pending, vmid.Of(id))
	}
	return body.Write(c, fiber.StatusOK, out)
}

func (h *Handler) remove(c *fiber.Ctx) error {
	if err := h.bundles.Delete(c.UserContext(), auth.From(c), nameOf(c)); err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, body.Status{Status: "deleted"})
}

// nameOf returns the name in the path, as a copy: the router reuses its memory.
func nameOf(c *fiber.Ctx) string { return strings.Clone(c.Params("name")) }
