package backendai

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/backendai/complete"
	"github.com/millrace/millrace/services/gateway/internal/backendai/run"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/interpreter"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

const (
	// completeTimeout is how long a request waits for completions. A kernel that runs code has none
	// until that has ended.
	completeTimeout = 3 * time.Second
	completeTag     = "complete"
)

// completer serves completions of code.
type completer struct{ *Handler }

// complete responds to a request for completions.
func (h completer) complete(c *fiber.Ctx) error {
	raw, err := record.Body(c)
	if err != nil {
		return err
	}
	p, st, err := h.found(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	return h.answer(ctx, c, p, &st, raw)
}

// answer responds with the completions that the body of a request asks for.
func (h completer) answer(ctx context.Context, c *fiber.Ctx, p core.Principal, st *sandbox.State, raw []byte) error {
	var r complete.Request
	if len(raw) > 0 && json.Unmarshal(raw, &r) != nil {
		return badParams("the body must have a code, and options with post, line, row and col of the right types")
	}
	found := []string{}
	if code, ok := complete.Code(session.Language(st), r.Prefix()); ok {
		var err error
		if found, err = h.run(ctx, p, st, code); err != nil {
			return err
		}
	}
	return c.JSON(fiber.Map{"result": fiber.Map{"status": run.Finished, "completions": found}})
}

// run returns the completions that code prints in the session's kernel; none if the kernel
// is busy.
func (h completer) run(ctx context.Context, p core.Principal, st *sandbox.State, code string) ([]string, error) {
	spec, err := h.cfg.Runs.Spec(ctx, p, st.ID, session.Language(st), interpreter.Run{Code: code})
	if err != nil {
		return nil, err
	}
	tag := completeTag
	spec.Tag, spec.Helper = &tag, true
	id, src, err := h.cfg.Operations.Start(ctx, p, st.ID, spec, procs.StartOptions{})
	if err != nil {
		return nil, err
	}
	f := run.Follow(src, run.Position{})
	defer f.Close()
	var text strings.Builder
	for until := time.Now().Add(completeTimeout); ; {
		r, err := f.Next(ctx, time.Until(until))
		if err != nil {
			return nil, err
		}
		for _, item := range r.Console {
			if item.Type == "stdout" {
				text.WriteString(item.Text)
			}
		}
		switch {
		case r.Status == run.Finished || r.Status == run.Timeout:
			return complete.Parse(text.String()), nil
		case time.Now().After(until):
			if err := h.cfg.Operations.Signal(ctx, p, id, sigKill); err != nil && !kind.Is(err, kind.NotFound) {
				return nil, err
			}
			return complete.Parse(text.String()), nil
		}
	}
}
