package record

import (
	"encoding/json"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/provision"
)

// Idempotency returns the Idempotency-Key of a request that creates, with the content that it stands
// for: the path and the decoded body, so that the order of names in the JSON is irrelevant.
func Idempotency(c *fiber.Ctx, body any) (provision.Idempotency, error) {
	key := strings.Clone(c.Get(HeaderKey))
	if key == "" {
		return provision.Idempotency{}, nil
	}
	if err := CheckKey(key); err != nil {
		return provision.Idempotency{}, err
	}
	raw, err := json.Marshal(body)
	return provision.Idempotency{Key: key, Request: append([]byte(c.Path()+"\n"), raw...)}, err
}
