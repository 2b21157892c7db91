package e2b

import (
	"encoding/json"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// idempotency reads the request's Idempotency-Key. What the request asks for is its
// path and its decoded body: the order of names in the JSON does not matter.
func idempotency(c *fiber.Ctx, body any) (core.Idempotency, error) {
	key := strings.Clone(c.Get(record.HeaderKey))
	if key == "" {
		return core.Idempotency{}, nil
	}
	if err := record.CheckKey(key); err != nil {
		return core.Idempotency{}, err
	}
	raw, err := json.Marshal(body)
	return core.Idempotency{Key: key, Request: append([]byte(c.Path()+"\n"), raw...)}, err
}

// retryAfter is the number of seconds after which a create that found no free capacity
// may be sent again.
const retryAfter = "5"

// notPlaced answers a create for which every host stayed full, or returns err. E2B's
// clients know 503 as "the service is busy"; they take 409 for a mistake of theirs.
func notPlaced(c *fiber.Ctx, err error) error {
	if !kind.Is(err, kind.Exhausted) {
		return err
	}
	c.Set(fiber.HeaderRetryAfter, retryAfter)
	return httperr.WriteAs(c, fiber.StatusServiceUnavailable, err)
}
