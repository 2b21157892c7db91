package sandboxes

import (
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2a/vmid"
)

// Find returns the sandbox in the path of a request. It returns NotFound for another tenant's, for
// one that never ran, and for one that ended more than [shownAfterEnd] ago.
func (h *Handler) Find(c *fiber.Ctx) (sandbox.State, error) {
	id, err := vmid.Parse(c.Params("id"))
	if err != nil {
		return sandbox.State{}, err
	}
	st, err := h.Lifecycle.Lookup(c.UserContext(), auth.From(c), id)
	if err == nil && !h.shown(&st) {
		err = core.NoSandbox(id)
	}
	return st, err
}
