package gateway

import (
	"time"

	"github.com/gofiber/fiber/v2"
)

// noDeadline clears the deadline of a connection.
var noDeadline time.Time

// exposed are the response headers that scripts may read.
const exposed = "X-Next-Token, X-Total-Running, Retry-After, X-Request-Id, ETag, Location, " +
	"X-Process-Id, X-Replay-From, Stream-Next-Offset, Stream-Up-To-Date, Stream-Closed, Stream-Cursor, " +
	"Connect-Content-Encoding, Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, Cache-Control, X-Content-Type-Options, " +
	"Accept-Ranges, Content-Disposition, Content-Encoding, Content-Range"

// cors allows pages of any origin to use the API. Access depends on the key or token that they
// send, never on a cookie or an address.
func cors(c *fiber.Ctx) error {
	if c.Get(fiber.HeaderOrigin) == "" {
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
