package processes

import (
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// list responds with a page of the principal's processes, newest first: those in a sandbox, in a
// state (starting, running, ended; several with commas), with a tag, with an id that begins
// with a prefix.
func (h *Handler) list(c *fiber.Ctx) error {
	states, err := statesOf(c.Query("state"))
	if err != nil {
		return err
	}
	prefix, tag, tagged := c.Query("prefix"), c.Query("tag"), c.Context().QueryArgs().Has("tag")
	active := len(states) > 0 && !slices.Contains(states, textenc.StateEnded)
	return record.List(c, h.core, active, func(s *process.Summary) bool {
		return (len(states) == 0 || slices.Contains(states, textenc.StateOf(s))) &&
			(!tagged || s.Spec.Tag != nil && *s.Spec.Tag == tag) && strings.HasPrefix(string(s.ID), prefix)
	})
}

// statesOf parses states separated by commas; none: all.
func statesOf(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	states := strings.Split(list, ",")
	for _, s := range states {
		if s != textenc.StateStarting && s != textenc.StateRunning && s != textenc.StateEnded {
			return nil, kind.New(kind.Invalid, "list processes", "", "state must be starting, running or ended")
		}
	}
	return states, nil
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
