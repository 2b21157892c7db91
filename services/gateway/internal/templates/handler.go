// Package templates lets operators import, list and remove templates. The parts of a
// template are uploaded one by one, each under its sum, so that an interrupted import
// uploads only the missing ones; then the manifest is stored under a name.
package templates

import (
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/part"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/templatestore"
)

// Handler implements the surface.
type Handler struct {
	core    *core.Core
	store   *templatestore.Store
	packers sync.Pool // of *part.Packer
}

// New returns the surface.
func New(c *core.Core, store *templatestore.Store) *Handler { return &Handler{core: c, store: store} }

// Register adds the routes; may is the middleware that guards those which change something.
func (h *Handler) Register(r fiber.Router, may fiber.Handler) {
	r.Get("/v1/store/templates", h.list)
	r.Head("/v1/store/templates/parts/:sum", may, h.has)
	r.Put("/v1/store/templates/parts/:sum", may, h.put)
	r.Get("/v1/store/templates/:name", h.show)
	r.Put("/v1/store/templates/:name", may, h.tag)
	r.Delete("/v1/store/templates/:name", may, h.remove)
}

// body is a template under one of its names.
type body struct {
	Name     string             `json:"name"`
	Tag      string             `json:"tag"`
	ID       string             `json:"id"`
	Arch     string             `json:"arch"`
	Size     int64              `json:"size"` // bytes of its files
	Files    int64              `json:"files"`
	Tagged   time.Time          `json:"tagged_at"`
	Shared   bool               `json:"shared"` // another tenant's, usable by all
	Sudo     bool               `json:"sudo"`
	User     string             `json:"user"`
	Dir      string             `json:"workdir"` // empty: the user's home
	Env      map[string]string  `json:"env"`
	Start    []string           `json:"start"`
	Services []template.Service `json:"services,omitempty"`
	Hosts    []string           `json:"hosts"` // hosts that have it in their cache
}

func (h *Handler) bodyOf(c *fiber.Ctx, t *catalog.Template) (body, error) {
	m := &t.Manifest
	if b := t.Built; b != nil {
		env, err := h.store.BuiltEnv(t)
		if err != nil {
			return body{}, err
		}
		m = &template.Manifest{Env: env, User: b.User, Workdir: b.Workdir}
		if b.Start != "" {
			m.Start = []string{b.Start}
		}
	}
	out := body{
		Name: t.Name, Tag: t.Tag, ID: string(t.ID), Arch: m.Arch, Size: m.Size, Files: m.Files, Tagged: t.Tagged.UTC(),
		Shared: t.Tenant != auth.From(c).Tenant, Sudo: m.Sudo, User: m.User, Dir: m.Workdir, Env: m.Env, Start: m.Start, Services: m.Services,
		Hosts: h.store.HostsWithTemplate(t.ID),
	}
	if out.User == "" {
		out.User = template.DefaultUser
	}
	if out.Env == nil {
		out.Env = map[string]string{}
	}
	if out.Start == nil {
		out.Start = []string{}
	}
	return out, nil
}

func (h *Handler) list(c *fiber.Ctx) error {
	if err := h.core.Sync(c.UserContext()); err != nil {
		return err
	}
	out := []body{}
	for _, t := range h.store.List(auth.From(c)) {
		b, err := h.bodyOf(c, &t)
		if err != nil {
			return err
		}
		out = append(out, b)
	}
	return c.JSON(fiber.Map{"templates": out})
}

// name returns the path's NAME, NAME:TAG or id.
func name(c *fiber.Ctx) string {
	s, err := url.PathUnescape(c.Params("name"))
	if err != nil {
		return ""
	}
	return strings.Clone(s)
}

func (h *Handler) show(c *fiber.Ctx) error {
	t, err := h.store.Template(c.UserContext(), auth.From(c), name(c))
	if err != nil {
		return err
	}
	return h.respond(c, fiber.StatusOK, &t)
}

func (h *Handler) tag(c *fiber.Ctx) error {
	t, err := h.store.TagTemplate(c.UserContext(), auth.From(c), name(c), c.Request().Body())
	if err != nil {
		return err
	}
	return h.respond(c, fiber.StatusCreated, &t)
}

// respond writes a response with a template.
func (h *Handler) respond(c *fiber.Ctx, status int, t *catalog.Template) error {
	b, err := h.bodyOf(c, t)
	if err != nil {
		return err
	}
	return c.Status(status).JSON(b)
}

func (h *Handler) remove(c *fiber.Ctx) error {
	if err := h.store.RemoveTemplate(c.UserContext(), auth.From(c), name(c)); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

func (h *Handler) has(c *fiber.Ctx) error {
	sum, err := template.ParseSum(strings.Clone(c.Params("sum")))
	if err != nil {
		return err
	}
	has, err := h.store.HasTemplatePart(c.UserContext(), sum)
	switch {
	case err != nil:
		return err
	case !has:
		return c.SendStatus(fiber.StatusNotFound)
	}
	return c.SendStatus(fiber.StatusOK)
}

func (h *Handler) put(c *fiber.Ctx) error {
	sum, err := template.ParseSum(strings.Clone(c.Params("sum")))
	if err != nil {
		return err
	}
	packed := c.Request().Body()
	if len(packed) > part.MaxPacked {
		return fiber.ErrRequestEntityTooLarge
	}
	if err := h.check(packed, sum); err != nil {
		return err
	}
	if err := h.store.PutTemplatePart(c.UserContext(), sum, packed); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusCreated)
}

// check unpacks a part to verify its sum.
func (h *Handler) check(packed []byte, sum template.Sum) error {
	p, ok := h.packers.Get().(*part.Packer)
	if !ok {
		var err error
		if p, err = part.New(); err != nil {
			return kind.Wrap(kind.Internal, "check", string(sum), err)
		}
	}
	defer h.packers.Put(p)
	return p.Check(packed, sum)
}
