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

// Core is the part of the gateway's operations that the surface uses.
type Core interface {
	OpenFiles(ctx context.Context, p core.Principal, sbx sandbox.ID, req *file.Request) (*core.Files, error)
}

// Handler implements the surface.
type Handler struct {
	core    Core
	streams *stream.Streams
}

// New returns the surface.
func New(c Core, streams *stream.Streams) *Handler { return &Handler{core: c, streams: streams} }

// Register adds the routes. The principal must be set before (auth.From), and the server
// must leave the body of a POST to Path unread.
func (h *Handler) Register(r fiber.Router) {
	r.Get(Path, withStatus(h.get)) // and HEAD
	r.Post(Path, withStatus(h.post))
	r.Post(Path+"/compose", withStatus(h.compose))
}

// Path is the path of the routes.
const Path = "/files"

// withStatus returns a route's error with the usual status, except where E2B's clients expect a
// different one.
func withStatus(do fiber.Handler) fiber.Handler {
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

// fileRequest is a file request with its principal and sandbox.
type fileRequest struct {
	principal core.Principal
	sandbox   sandbox.ID
	file.Request
}

func newFileRequest(c *fiber.Ctx, op file.Op) (fileRequest, error) {
	a := fileRequest{principal: auth.From(c), sandbox: route.Of(c).Sandbox}
	if a.sandbox == "" {
		a.sandbox = a.principal.Sandbox // found by the signature
	}
	if a.sandbox == "" {
		return a, kind.New(kind.Invalid, "files", "", "the request names no sandbox")
	}
	a.Op, a.Path, a.User = op, strings.Clone(c.Query("path")), strings.Clone(c.Query("username"))
	return a, a.Check()
}
