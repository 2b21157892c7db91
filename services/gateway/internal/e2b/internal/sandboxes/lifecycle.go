package sandboxes

import (
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

const (
	minRefresh = 15 // seconds
	maxRefresh = 3600
)

// Detail serves GET /sandboxes/:id.
func (h *Handler) Detail(c *fiber.Ctx) error {
	st, err := h.pathSandbox(c, auth.From(c))
	if err != nil {
		return err
	}
	body, err := h.bodies.details(&st)
	if err != nil {
		return err
	}
	return c.JSON(body)
}

// Kill serves DELETE /sandboxes/:id.
func (h *Handler) Kill(c *fiber.Ctx) error {
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return err
	}
	if err := h.lifecycle.DestroySandbox(c.UserContext(), auth.From(c), id); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// Timeout sets the end, earlier or later; 0 ends the sandbox now.
func (h *Handler) Timeout(c *fiber.Ctx) error {
	var body struct {
		Timeout *int64 `json:"timeout"`
	}
	if err := wire.Decode(c, &body, true); err != nil {
		return err
	}
	if body.Timeout == nil {
		return wire.Invalid("timeout is required")
	}
	timeout, err := h.timeout.parse(body.Timeout, 0)
	if err != nil {
		return err
	}
	return h.move(c, timeout, false)
}

// Refresh extends the timeout to at least 15 s from now.
func (h *Handler) Refresh(c *fiber.Ctx) error {
	var body struct {
		Duration *int64 `json:"duration"`
	}
	if err := wire.Decode(c, &body, false); err != nil {
		return err
	}
	seconds := int64(minRefresh)
	if body.Duration != nil {
		if *body.Duration < 0 || *body.Duration > maxRefresh {
			return wire.Invalid("duration must be between 0 and %d seconds", maxRefresh)
		}
		seconds = max(seconds, *body.Duration)
	}
	return h.move(c, time.Duration(seconds)*time.Second, true)
}

func (h *Handler) move(c *fiber.Ctx, timeout time.Duration, extendOnly bool) error {
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return err
	}
	if _, err := h.lifecycle.SetDeadline(c.UserContext(), auth.From(c), id, time.Now().Add(timeout), extendOnly); err != nil {
		return notStopping(id, err)
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// notStopping returns err, or NotFound for a stopping sandbox: clients have no such phase.
func notStopping(id sandbox.ID, err error) error {
	if kind.Is(err, kind.Conflict) {
		return kind.New(kind.NotFound, "set timeout", string(id), "sandbox not found")
	}
	return err
}

// pathSandbox returns the sandbox in the path, as of the request or later. It is NotFound unless
// it is running or paused: clients have no other phase.
func (h *Handler) pathSandbox(c *fiber.Ctx, p core.Principal) (sandbox.State, error) {
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return sandbox.State{}, err
	}
	st, err := h.lifecycle.Lookup(c.UserContext(), p, id)
	if err == nil && !st.IsRunning() && !st.InPause() {
		return st, kind.New(kind.NotFound, "find sandbox", string(id), "sandbox not found")
	}
	return st, err
}

// SetNetwork sets what a sandbox may reach: absent fields are cleared. The access to the
// sandbox itself is unchanged.
func (h *Handler) SetNetwork(c *fiber.Ctx) error {
	var body networkBody
	if err := wire.Decode(c, &body, true); err != nil {
		return err
	}
	n, err := h.networks.parse(&body, auth.From(c).Tenant, body.AllowInternetAccess == nil || *body.AllowInternetAccess)
	if err != nil {
		return err
	}
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return err
	}
	if err := h.lifecycle.SetNetwork(c.UserContext(), auth.From(c), id, n); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}
