package backendai

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/backendai/run"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/interpreter"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// maxLogs is the maximum size of a response with logs, of which the last part is sent.
const maxLogs = 1 << 20

// outputs serves the output of sessions.
type outputs struct{ *Handler }

// logs responds with the output of a session's kernels and runs, oldest first.
func (h outputs) logs(c *fiber.Ctx) error {
	p, st, err := h.found(c)
	if kind.Is(err, kind.NotFound) {
		st, err = h.endedBatch(p, strings.Clone(c.Params("id")), err)
	}
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	all, err := h.cfg.Operations.Processes(ctx, p, st.ID, func(s *process.Summary) bool {
		return plain(s) || isRun(s)
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

// plain reports whether the output of a process is text: that of a kernel, or of the command of a
// batch session.
func plain(s *process.Summary) bool { return interpreter.Kernel(s) || isBatch(s) }

// endedBatch returns the batch session with a name or UUID that has ended, whose output is kept, or
// missing.
func (h outputs) endedBatch(p core.Principal, name string, missing error) (sandbox.State, error) {
	id, _ := session.ParseUUID(name)
	all := h.cfg.Operations.Sandboxes(p, func(s *sandbox.State) bool {
		_, batch := session.Command(s)
		return batch && (s.ID == id || session.Name(s) == name)
	})
	if len(all) == 0 {
		return sandbox.State{}, missing
	}
	return all[0], nil
}

// log appends the stored output of a process.
func (h outputs) log(ctx context.Context, p core.Principal, s *process.Summary, out []byte) ([]byte, error) {
	opened, err := record.Open(ctx, h.cfg.Operations, p, s.ID, record.Options{})
	if err != nil {
		return out, err
	}
	defer opened.Source.Close()
	lines := run.NewCollector(run.Position{})
	for {
		batch, err := opened.Source.Next(ctx, 0)
		for _, e := range batch {
			if w, ok := e.Body.(process.Wrote); ok && plain(s) {
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
