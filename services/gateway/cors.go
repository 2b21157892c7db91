package gateway

import (
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/family"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// noDeadline clears the deadline of a connection.
var noDeadline time.Time

// exposed are the response headers that scripts may read.
const exposed = "X-Next-Token, X-Total-Running, Retry-After, X-Request-Id, ETag, Location, " +
	"X-Process-Id, X-Replay-From, Stream-Next-Offset, Stream-Up-To-Date, Stream-Closed, Stream-Cursor, " +
	"Connect-Content-Encoding, Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, Cache-Control, X-Content-Type-Options, " +
	"Accept-Ranges, Content-Disposition, Content-Encoding, Content-Range"

// cors allows pages of any origin to use the API: access depends on the key or token that they
// send, never on a cookie or an address. Where a family accepts only the gateway's own origin,
// others get 403.
func cors(c *fiber.Ctx) error {
	origin := c.Get(fiber.HeaderOrigin)
	switch allowed := route.Part(c).Origin; {
	case origin == "" || allowed == family.Unchecked:
		return c.Next()
	case allowed == family.OwnOrigin:
		if !own(origin, c) {
			return fiber.NewError(fiber.StatusForbidden, "requests from pages of other origins are not allowed")
		}
		return c.Next()
	}
	c.Set(fiber.HeaderAccessControlAllowOrigin, "*")
	if c.Method() != fiber.MethodOptions || c.Get(fiber.HeaderAccessControlRequestMethod) == "" {
		c.Set(fiber.HeaderAccessControlExposeHeaders, exposed)
		return c.Next()
	}
	c.Set(fiber.HeaderAccessControlAllowMethods, "GET, HEAD, POST, PUT, PATCH, DELETE")
	if h := c.Get(fiber.HeaderAccessControlRequestHeaders); h != "" {
		// Not "*": that leaves out Authorization.
		c.Set(fiber.HeaderAccessControlAllowHeaders, h)
	}
	c.Set(fiber.HeaderAccessControlMaxAge, "7200")
	c.Set(fiber.HeaderVary, fiber.HeaderAccessControlRequestHeaders)
	return c.SendStatus(fiber.StatusNoContent)
}

// own reports whether an origin is the host that the request was sent to.
func own(origin string, c *fiber.Ctx) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, string(c.Request().Host()))
}
