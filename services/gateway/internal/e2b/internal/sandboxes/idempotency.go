package sandboxes

import (
	"encoding/json"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/provision"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// idempotency returns the request's Idempotency-Key with the content that it stands for:
// the path and the decoded body, so that the order of names in the JSON is irrelevant.
func idempotency(c *fiber.Ctx, body any) (provision.Idempotency, error) {
	key := strings.Clone(c.Get(record.HeaderKey))
	if key == "" {
		return provision.Idempotency{}, nil
	}
	if err := record.CheckKey(key); err != nil {
		return provision.Idempotency{}, err
	}
	raw, err := json.Marshal(body)
	return provision.Idempotency{Key: key, Request: append([]byte(c.Path()+"\n"), raw...)}, err
}

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
