package route

import (
	"log/slog"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/family"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
)

type partKey struct{}

// Part returns the part of a family that the request belongs to. It must not be modified.
func Part(c *fiber.Ctx) *family.Part {
	if p, ok := c.Locals(partKey{}).(*family.Part); ok {
		return p
	}
	port := 0
	if c.Get(HeaderSandbox) != "" {
		if port = headerPort(c); port == 0 {
			port = -1 // invalid, but not absent
		}
	}
	p := family.Of(family.Request{
		Host: string(c.Request().Host()), Port: port, Path: c.Path(),
		Upgrade: c.Request().Header.ConnectionUpgrade() && strings.EqualFold(c.Get(fiber.HeaderUpgrade), "websocket"),
	})
	c.Locals(partKey{}, &p)
	return &p
}

// ErrorHandler returns an app's error handler: it responds, and logs the details that are not
// sent to the client.
func ErrorHandler(log *slog.Logger) fiber.ErrorHandler {
	return func(c *fiber.Ctx, err error) error {
		b := httperr.Of(err)
		if b.Code >= fiber.StatusInternalServerError {
			// Without the query, which may contain credentials.
			log.Warn("request failed", "method", c.Method(), "path", c.Path(), "status", b.Code, "err", err)
		}
		return WriteBody(c, &b)
	}
}

// WriteError responds with err as the clients of the request's family expect.
func WriteError(c *fiber.Ctx, err error) error {
	b := httperr.Of(err)
	return WriteBody(c, &b)
}

// WriteBody is like [WriteError] for a given status and text.
func WriteBody(c *fiber.Ctx, b *httperr.Body) error {
	shape := Part(c).Errors
	if shape == httperr.Proxy {
		t := Of(c)
		return httperr.WriteProxied(c, httperr.Proxied{SandboxID: t.Named, Message: b.Message, Port: t.Port, Code: b.Code})
	}
	return shape.Write(c, b)
}
