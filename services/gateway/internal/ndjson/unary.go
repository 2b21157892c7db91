package ndjson

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// sandbox returns the sandbox that the request names, else the token's, else the only
// running one.
func (h *Handler) sandbox(c *fiber.Ctx, p core.Principal) (sandbox.ID, error) {
	return route.Choose(c, p.Sandbox, func() []sandbox.State { return h.core.Sandboxes(p, (*sandbox.State).IsRunning) })
}

// process returns the process with the pid or id in the path, active or ended.
func (h *Handler) process(c *fiber.Ctx) (process.Summary, error) {
	ctx, cancel := record.Context(c)
	defer cancel()
	p, name := auth.From(c), strings.Clone(c.Params("pid"))
	if id, err := process.ParseID(name); err == nil {
		return h.core.Find(ctx, p, id.Sandbox(), procs.Selector{ID: id})
	}
	pid, err := strconv.ParseUint(name, 10, 32)
	if err != nil || pid == 0 {
		return process.Summary{}, kind.New(kind.NotFound, "find process", "", "process not found")
	}
	sbx, err := h.sandbox(c, p)
	if err != nil {
		return process.Summary{}, err
	}
	return h.core.Find(ctx, p, sbx, procs.Selector{PID: uint32(pid)})
}

// list returns a page of the running processes of the named sandbox, or of all the principal's,
// newest first; with all=1 also those that have ended.
func (h *Handler) list(c *fiber.Ctx) error {
	all := record.Flag(c, "all", false)
	return record.List(c, h.core, !all, func(s *process.Summary) bool { return all || s.PID != 0 })
}

// get returns one command.
func (h *Handler) get(c *fiber.Ctx) error {
	s, err := h.process(c)
	if err != nil {
		return err
	}
	return c.JSON(textenc.SummaryOf(&s))
}

const sigKill = 9

// killed is the response to a kill.
type killed struct {
	PID     uint32 `json:"pid"`
	Process string `json:"process"`
	Signal  int32  `json:"signal"`
}

// kill sends SIGKILL, or the body's {"signal": "SIGTERM"}, to the process group.
func (h *Handler) kill(c *fiber.Ctx) error {
	req := struct {
		Signal textenc.Signal `json:"signal"`
	}{sigKill}
	if len(bytes.TrimSpace(c.Request().Body())) > 0 {
		if err := record.Read(c, &req); err != nil {
			return err
		}
	}
	s, err := h.process(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	if err := h.core.Signal(ctx, auth.From(c), s.ID, int32(req.Signal)); err != nil {
		return err
	}
	return c.JSON(killed{PID: s.PID, Process: string(s.ID), Signal: int32(req.Signal)})
}

// stdin sends the body to the command's stdin, and closes it with eof=1. With an
// Idempotency-Key it may be repeated.
func (h *Handler) stdin(c *fiber.Ctx) error {
	s, err := h.process(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	if err := record.SendInput(ctx, c, h.core, s.ID); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// resize sets the terminal's size, {"cols": 80, "rows": 24}.
func (h *Handler) resize(c *fiber.Ctx) error {
	var req textenc.Size
	if err := record.Read(c, &req); err != nil {
		return err
	}
	s, err := h.process(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	if err := h.core.Resize(ctx, auth.From(c), s.ID, process.Size{Cols: req.Cols, Rows: req.Rows}); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}
