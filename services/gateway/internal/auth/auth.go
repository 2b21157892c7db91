// Package auth finds out who asks. An API key stands for its tenant; a
// sandbox's access token stands for that sandbox only.
package auth

import (
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/core"
)

type local struct{}

// From gives who asks: what the middleware found. It is never called before
// the middleware.
func From(c *fiber.Ctx) core.Principal {
	p, _ := c.Locals(local{}).(core.Principal)
	return p
}

// Set puts in who asks, as the middleware does; tests of surfaces use it.
func Set(c *fiber.Ctx, p core.Principal) { c.Locals(local{}, p) }
