package route

import (
	"log/slog"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/family"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
)

type (
	partKey  struct{}
	hostsKey struct{}
)

// Hosts returns middleware that makes [Part] respect the gateway's host names. It comes first.
func Hosts(names family.Hosts) fiber.Handler {
	return func(c *fiber.Ctx) error {
		c.Locals(hostsKey{}, &names)
		return c.Next()
	}
}

// WebSocketBase returns the base of the URLs at which clients connect to runtimes of conversations:
// ws:// or wss:// and a host. The host is the configured one, or that of the request; secure says
// that clients use TLS, which a proxy may also say in X-Forwarded-Proto.
func WebSocketBase(c *fiber.Ctx, names family.Hosts, secure bool) string {
	scheme, host := "ws://", strings.Clone(string(c.Request().Host()))
	if overTLS(c, secure) {
		scheme = "wss://"
	}
	if names.Runtime != "" {
		host = names.Runtime
	}
	return scheme + host
}

// Base returns the URL of the gateway as the client of a request reaches it. secure is as for
// [WebSocketBase].
func Base(c *fiber.Ctx, secure bool) string {
	scheme := "http://"
	if overTLS(c, secure) {
		scheme = "https://"
	}
	return scheme + string(c.Request().Host())
}

func overTLS(c *fiber.Ctx, secure bool) bool { return secure || c.Protocol() == "https" }

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
	var names family.Hosts
	if h, ok := c.Locals(hostsKey{}).(*family.Hosts); ok {
		names = *h
	}
	p := family.Of(family.Request{
		Hosts: names,
		Host:  string(c.Request().Host()), Port: port, Path: c.Path(),
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
