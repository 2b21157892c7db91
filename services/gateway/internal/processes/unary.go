package processes

import (
	"slices"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// list responds with the principal's processes, oldest first: those in a sandbox, in a state
// (starting, running, ended), with a tag; with a limit, the newest of them.
func (h *Handler) list(c *fiber.Ctx) error {
	n, err := record.Limit(c)
	if err != nil {
		return err
	}
	sbx, err := sandboxOf(c)
	if err != nil {
		return err
	}
	state, tag, tagged := c.Query("state"), c.Query("tag"), c.Context().QueryArgs().Has("tag")
	if state != "" && state != textenc.StateStarting && state != textenc.StateRunning && state != textenc.StateEnded {
		return kind.New(kind.Invalid, "list processes", "", "state must be starting, running or ended")
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	found, err := h.core.Processes(ctx, auth.From(c), sbx, func(s *process.Summary) bool {
		return (state == "" || textenc.StateOf(s) == state) && (!tagged || s.Spec.Tag != nil && *s.Spec.Tag == tag)
	})
	if err != nil {
		return err
	}
	if n > 0 && len(found) > n {
		found = slices.Clone(found[len(found)-n:])
	}
	out := make([]textenc.Summary, len(found))
	for i := range found {
		out[i] = textenc.SummaryOf(&found[i])
	}
	return c.JSON(out)
}

// sandboxOf returns the sandbox that the request names, if any.
func sandboxOf(c *fiber.Ctx) (sandbox.ID, error) {
	t := route.Of(c)
	if t.Named != "" && t.Sandbox == "" {
		return "", kind.New(kind.NotFound, "list processes", "", "sandbox not found")
	}
	return t.Sandbox, nil
}

// get responds with one process.
func (h *Handler) get(c *fiber.Ctx) error {
	id, err := record.ProcessID(c, "id")
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	s, err := h.core.Process(ctx, auth.From(c), id)
	if err != nil {
		return err
	}
	return c.JSON(textenc.SummaryOf(&s))
}

// signal sends {"signal": "SIGTERM"} to the process group.
func (h *Handler) signal(c *fiber.Ctx) error {
	id, err := record.ProcessID(c, "id")
	if err != nil {
		return err
	}
	var req struct {
		Signal textenc.Signal `json:"signal"`
	}
	if err := record.Read(c, &req); err != nil {
		return err
	}
	if req.Signal == 0 {
		return kind.New(kind.Invalid, "signal", string(id), "signal is required")
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	return done(c, h.core.Signal(ctx, auth.From(c), id, int32(req.Signal)))
}

// stdin sends the body's bytes to the process; with eof=1 it closes stdin after them. With an
// Idempotency-Key the request may be retried.
func (h *Handler) stdin(c *fiber.Ctx) error {
	id, err := record.ProcessID(c, "id")
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	return done(c, record.SendInput(ctx, c, h.core, id))
}

// resize sets the terminal's size, {"cols": 80, "rows": 24}; it does nothing for a process
// without one.
func (h *Handler) resize(c *fiber.Ctx) error {
	id, err := record.ProcessID(c, "id")
	if err != nil {
		return err
	}
	var req textenc.Size
	if err := record.Read(c, &req); err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	return done(c, h.core.Resize(ctx, auth.From(c), id, process.Size{Cols: req.Cols, Rows: req.Rows}))
}

func done(c *fiber.Ctx, err error) error {
	if err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}
