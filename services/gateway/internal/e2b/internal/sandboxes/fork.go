package sandboxes

import (
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// maxForks is the maximum number of forks of one request.
const maxForks = 100

// forkBody is one result of a fork: a sandbox or an error, and for a sandbox whether the
// processes of the original continue in it.
type forkBody struct {
	Sandbox *sandboxBody  `json:"sandbox,omitempty"`
	Memory  *bool         `json:"memory,omitempty"`
	Error   *httperr.Body `json:"error,omitempty"`
}

// Fork serves POST /sandboxes/:id/fork.
func (cr *creator) Fork(c *fiber.Ctx) error {
	var body struct {
		Timeout *int64 `json:"timeout"`
		Count   *int   `json:"count"`
	}
	if err := wire.Decode(c, &body, false); err != nil {
		return err
	}
	timeout, err := cr.timeout.parse(body.Timeout, V1.timeout)
	if err != nil {
		return err
	}
	count := 1
	if body.Count != nil {
		count = *body.Count
	}
	if count < 1 || count > maxForks {
		return wire.Invalid("count must be between 1 and %d", maxForks)
	}
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return err
	}
	forks, memory, err := cr.provisioner.ForkSandbox(c.UserContext(), auth.From(c), id, count, timeout)
	if err != nil {
		return err
	}
	out := make([]forkBody, len(forks))
	for i := range forks {
		if err := forks[i].Err; err != nil {
			b := httperr.Of(err)
			out[i].Error = &b
			continue
		}
		b := cr.bodies.sandbox(&forks[i].State)
		out[i].Sandbox, out[i].Memory = &b, &memory
	}
	return c.Status(fiber.StatusCreated).JSON(out)
}
