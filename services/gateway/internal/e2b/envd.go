package e2b

import (
	"context"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/port"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// Proxy is the middleware that does, before anybody is asked who he is, what
// E2B's proxy does for the data plane's port: envd's internal routes are
// nobody's; /health tells whether a sandbox runs.
func (h *Handler) Proxy(c *fiber.Ctx) error {
	t := route.Of(c)
	if t.Named == "" {
		return c.Next()
	}
	switch c.Path() {
	case "/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade":
		return fiber.ErrNotFound
	case "/health":
		return ifOK(c, t, h.core.Alive, func() error { return c.SendStatus(fiber.StatusNoContent) })
	}
	return c.Next()
}

// ifOK answers with what then does, or that the sandbox is gone.
func ifOK(c *fiber.Ctx, t route.Target, ask func(context.Context, sandbox.ID) (bool, error), then func() error) error {
	ok, err := ask(c.UserContext(), t.Sandbox)
	switch {
	case err != nil:
		return err
	case !ok:
		return badGateway(c, port.Gone(t))
	}
	return then()
}

// Guard is the middleware that answers 502 where a request for a sandbox's data
// plane finds no such sandbox running, which is how SDKs learn of its end; a
// paused one is resumed for it if its creator wanted that. What reads records
// goes on: they outlive their sandbox.
func (h *Handler) Guard(c *fiber.Ctx) error {
	path := c.Path()
	if !auth.DataPlane(path) || strings.HasPrefix(path, "/commands") {
		return c.Next()
	}
	t := route.Of(c)
	if t.Named == "" {
		return c.Next()
	}
	ok, err := h.core.Running(c.UserContext(), auth.From(c), t.Sandbox)
	if path == "/process.Process/Connect" { // who waits for more of it wants it to run
		return c.Next()
	}
	if err != nil {
		return err
	}
	if !ok {
		return badGateway(c, port.Gone(t))
	}
	return c.Next()
}

func badGateway(c *fiber.Ctx, b port.Body) error {
	if err := c.Status(b.Code).JSON(b); err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSONCharsetUTF8)
	return nil
}
