package files

import (
	"context"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Core is what the surface needs of the gateway's.
type Core interface {
	AskFiles(ctx context.Context, p core.Principal, sbx sandbox.ID, req *file.Request) (*core.Files, error)
}

// Handler serves the surface.
type Handler struct {
	core    Core
	streams *stream.Streams
}

// New gives the surface.
func New(c Core, streams *stream.Streams) *Handler { return &Handler{core: c, streams: streams} }

// Register adds the routes. The principal must be known before (auth.From), and
// the server must leave the body of a POST to Path unread.
func (h *Handler) Register(r fiber.Router) {
	r.Get(Path, told(h.get)) // and HEAD
	r.Post(Path, told(h.post))
	r.Post(Path+"/compose", told(h.compose))
}

// Path is where files are served.
const Path = auth.FilesPath

// told answers with what a route fails with: as everywhere, but where E2B's
// clients know better.
func told(do fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		err := do(c)
		switch kind.Of(err) {
		case kind.Exhausted:
			return httperr.WriteAs(c, http.StatusInsufficientStorage, err)
		case kind.Precondition:
			return httperr.WriteAs(c, http.StatusBadRequest, err)
		}
		return err
	}
}

// ask is a request's principal and sandbox.
type ask struct {
	who core.Principal
	sbx sandbox.ID
	file.Request
}

func newAsk(c *fiber.Ctx, op file.Op) (ask, error) {
	a := ask{who: auth.From(c), sbx: route.Of(c).Sandbox}
	if a.sbx == "" {
		a.sbx = a.who.Sandbox // a signature says which
	}
	if a.sbx == "" {
		return a, kind.New(kind.Invalid, "files", "", "the request names no sandbox")
	}
	a.Op, a.Path, a.User = op, strings.Clone(c.Query("path")), strings.Clone(c.Query("username"))
	return a, a.Check()
}
