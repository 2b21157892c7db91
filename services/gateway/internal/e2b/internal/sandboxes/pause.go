package sandboxes

import (
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

const (
	defaultConnect = 5 * time.Minute
	defaultResume  = 15 * time.Second
)

// resumeBody is the body of connect and resume, and for Memory that of pause. With Memory
// false the sandbox's processes end, as if its machine were switched off and on.
type resumeBody struct {
	Timeout   *int64 `json:"timeout"`
	AutoPause *bool  `json:"autoPause"`
	Memory    *bool  `json:"memory"`
}

// dropsMemory reports whether only files are kept.
func (b *resumeBody) dropsMemory() bool { return b.Memory != nil && !*b.Memory }

// Pause pauses the sandbox and responds when it is paused.
func (h *Handler) Pause(c *fiber.Ctx) error {
	var body resumeBody
	if err := wire.Decode(c, &body, false); err != nil {
		return err
	}
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return err
	}
	if err := h.lifecycle.PauseSandbox(c.UserContext(), auth.From(c), id, body.dropsMemory()); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// Connect responds with a running sandbox: 201 if it was paused before. The timeout of a
// running sandbox is extended and never shortened. The first generation requires a
// timeout.
func (h *Handler) Connect(required bool) fiber.Handler {
	return func(c *fiber.Ctx) error {
		var body resumeBody
		if err := wire.Decode(c, &body, required); err != nil {
			return err
		}
		if required && body.Timeout == nil {
			return wire.Invalid("timeout is required")
		}
		st, resumed, err := h.resumeUnlessRunning(c, &body, defaultConnect, true)
		if err != nil {
			return err
		}
		if resumed {
			c.Status(fiber.StatusCreated)
		}
		return c.JSON(h.bodies.sandbox(&st))
	}
}

// Resume is the older Connect; a running sandbox is a conflict.
func (h *Handler) Resume(c *fiber.Ctx) error {
	var body resumeBody
	if err := wire.Decode(c, &body, false); err != nil {
		return err
	}
	st, resumed, err := h.resumeUnlessRunning(c, &body, defaultResume, false)
	if err != nil {
		return err
	}
	if !resumed {
		return kind.Newf(kind.Conflict, "resume", string(st.ID), "sandbox %s is already running", st.ID)
	}
	return c.Status(fiber.StatusCreated).JSON(h.bodies.sandbox(&st))
}

// resumeUnlessRunning resumes the sandbox in the path unless it is running.
func (h *Handler) resumeUnlessRunning(c *fiber.Ctx, b *resumeBody, def time.Duration, extend bool) (st sandbox.State, resumed bool, err error) {
	timeout, err := h.timeout.parse(b.Timeout, def)
	if err != nil {
		return st, false, err
	}
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return st, false, err
	}
	opt := lifecycle.ResumeOptions{Lifetime: timeout, Reboot: b.dropsMemory(), Extend: extend}
	if b.AutoPause != nil {
		opt.OnTimeout = onTimeout(*b.AutoPause, true)
	}
	return h.lifecycle.ResumeSandbox(c.UserContext(), auth.From(c), id, opt)
}

func onTimeout(pause, memory bool) string {
	switch {
	case pause && memory:
		return sandbox.OnTimeoutPause
	case pause:
		return sandbox.OnTimeoutPauseFiles
	}
	return sandbox.OnTimeoutKill
}
