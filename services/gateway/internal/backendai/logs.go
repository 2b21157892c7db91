package backendai

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/backendai/run"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/interpreter"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// maxLogs is the maximum size of a response with logs, of which the last part is sent.
const maxLogs = 1 << 20

// logs responds with the output of a session's kernels and runs, oldest first.
func (h *Handler) logs(c *fiber.Ctx) error {
	p, st, err := h.found(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	all, err := h.cfg.Operations.Processes(ctx, p, st.ID, func(s *process.Summary) bool {
		return interpreter.Kernel(s) || s.Spec.Tag != nil && strings.HasPrefix(*s.Spec.Tag, tagPrefix)
	})
	if err != nil {
		return err
	}
	var out []byte
	for i := range all {
		if out, err = h.log(ctx, p, &all[i], out); err != nil && !kind.Is(err, kind.Gone) && !kind.Is(err, kind.NotFound) {
			return err
		}
		out = out[max(0, len(out)-maxLogs):]
	}
	return c.JSON(fiber.Map{"result": fiber.Map{"logs": strings.ToValidUTF8(string(out), "\uFFFD")}})
}

// log appends the stored output of a process.
func (h *Handler) log(ctx context.Context, p core.Principal, s *process.Summary, out []byte) ([]byte, error) {
	opened, err := record.Open(ctx, h.cfg.Operations, p, s.ID, record.Options{})
	if err != nil {
		return out, err
	}
	defer opened.Source.Close()
	lines := run.NewCollector(run.Position{})
	for {
		batch, err := opened.Source.Next(ctx, 0)
		for _, e := range batch {
			if w, ok := e.Body.(process.Wrote); ok && interpreter.Kernel(s) {
				out = append(out, w.Data...)
				continue
			}
			lines.Add(e)
			out = lines.Drain(out)
			out = out[max(0, len(out)-2*maxLogs):]
		}
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}
