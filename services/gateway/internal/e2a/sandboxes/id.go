package sandboxes

import (
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// prefix precedes the id of a sandbox in a vm_id.
const prefix = "sbx_"

// vmID returns the id of a sandbox as clients of e2a see it.
func vmID(id sandbox.ID) string { return prefix + string(id) }

// ParseVMID returns the sandbox that a vm_id names, or the error of one that does not exist.
func ParseVMID(s string) (sandbox.ID, error) {
	rest, ok := strings.CutPrefix(s, prefix)
	id, err := sandbox.ParseID(strings.Clone(rest))
	if !ok || err != nil {
		return "", core.NoSandbox("")
	}
	return id, nil
}

// Find returns the sandbox in the path of a request. It returns NotFound for another tenant's, for
// one that never ran, and for one that ended more than [shownAfterEnd] ago.
func (h *Handler) Find(c *fiber.Ctx) (sandbox.State, error) {
	id, err := ParseVMID(c.Params("id"))
	if err != nil {
		return sandbox.State{}, err
	}
	st, err := h.Lifecycle.Lookup(c.UserContext(), auth.From(c), id)
	if err == nil && !h.shown(&st) {
		err = core.NoSandbox(id)
	}
	return st, err
}
