package workspaces

import (
	"context"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/workspace"
	"github.com/millrace/millrace/services/gateway/internal/workspaces"
)

// Relayer sends responses whose bodies are read while they are sent. *stream.Streams implements it.
type Relayer interface {
	Relay(c *fiber.Ctx, clean bool, get func(context.Context) (*http.Response, error), fail func(error) *http.Response)
}

// Links checks links to files. *workspaces.Links implements it.
type Links interface {
	Check(method, token string) (workspace.Scope, workspace.Path, error)
}

// Handler serves the routes. It is safe for concurrent use.
type Handler struct {
	store   workspaces.Store
	links   Links
	streams Relayer
	base    func(*fiber.Ctx) string
}

// New returns the surface. base returns the URL of the gateway, as the client of a request reaches it.
func New(s workspaces.Store, l Links, r Relayer, base func(*fiber.Ctx) string) *Handler {
	return &Handler{s, l, r, base}
}

const (
	one  = "/v1/workspaces/:app/:set"
	file = one + "/files/*"
	link = workspaces.LinkPath + ":token"
)

// Register adds the routes. The principal must be set before (auth.From), but for links.
func (h *Handler) Register(r fiber.Router) {
	r.Get("/v1/workspaces", h.all)
	r.Get(one, h.list)
	r.Get(one+"/files", h.list)
	r.Get(one+"/usage", h.usage)
	r.Delete(one, h.removeAll)
	r.Get(file, h.download)
	r.Put(file, h.upload)
	r.Delete(file, h.remove)
	r.Get(link, h.read)
	r.Put(link, h.write)
}
