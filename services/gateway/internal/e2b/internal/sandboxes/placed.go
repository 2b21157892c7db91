package sandboxes

import (
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
)

// retryAfter is the number of seconds after which a create that found no free capacity may
// be retried.
const retryAfter = "5"

// notPlaced responds to a create that found every host full, or returns err. E2B's clients
// treat 503 as a busy service, and 409 as their own error.
func notPlaced(c *fiber.Ctx, err error) error {
	if !kind.Is(err, kind.Exhausted) {
		return err
	}
	c.Set(fiber.HeaderRetryAfter, retryAfter)
	return httperr.WriteAs(c, fiber.StatusServiceUnavailable, err)
}
