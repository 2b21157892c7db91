package dataplane

import (
	"context"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// AgentTag is the tag of the process of an agent.
const AgentTag = "agent"

// Limits of a response.
const (
	defaultLines = 100
	maxLines     = 10_000
	maxBytes     = 1 << 20
)

// logged is the response to a request for a log.
type logged struct {
	Content   string `json:"content"`
	Truncated bool   `json:"truncated"`
	Total     uint64 `json:"total_bytes"`
}

// logs responds with the end of the log of the sandbox's agent.
func (h *Handler) logs(c *fiber.Ctx) error {
	lim, err := parseLimit(c)
	if err != nil {
		return err
	}
	st, err := h.Sandboxes.Find(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	p, tag := auth.From(c), AgentTag
	t := &tail{limit: lim}
	agent, err := h.Commands.Find(ctx, p, st.ID, procs.Selector{Tag: &tag})
	if err == nil {
		err = h.readTail(ctx, p, agent.ID, t)
	}
	if err != nil && !kind.Is(err, kind.NotFound) { // not found: no agent, or nothing in its record
		return err
	}
	content, total := t.content(), t.total()
	return body.Write(c, fiber.StatusOK, logged{Content: string(content), Truncated: uint64(len(content)) < total, Total: total})
}

// readTail reads the end of the record of a process.
func (h *Handler) readTail(ctx context.Context, p core.Principal, id process.ID, t *tail) error {
	end, err := h.Logs.Tail(ctx, p, id)
	if err != nil {
		return err
	}
	return t.read(ctx, end.Last, func(ctx context.Context, after process.Seq) (stream.Source, error) {
		o, err := record.Open(ctx, h.Logs, p, id, record.Options{Position: record.Position{After: after}})
		return o.Source, err
	})
}

// parseLimit returns what the query asks for.
func parseLimit(c *fiber.Ctx) (limit, error) {
	args := c.Context().QueryArgs()
	for _, name := range [...]string{"stream", "lines", "bytes"} {
		if len(args.PeekMulti(name)) > 1 {
			return limit{}, body.Invalid(name + " is given twice")
		}
	}
	which := "stderr"
	if args.Has("stream") {
		which = c.Query("stream")
	}
	switch which {
	case "stderr", "stdout", "all":
	default:
		return limit{}, body.Invalid("stream must be stderr")
	}
	lim := limit{lines: defaultLines}
	var err error
	switch {
	case args.Has("lines") && args.Has("bytes"):
		err = body.Invalid("lines and bytes are mutually exclusive")
	case args.Has("lines"):
		lim.lines, err = parseCount(c, "lines", maxLines)
	case args.Has("bytes"):
		lim.lines = 0
		lim.bytes, err = parseCount(c, "bytes", maxBytes)
	}
	if err == nil && which != "stderr" {
		err = kind.New(kind.Unimplemented, "read logs", "", "stream "+which+" is not implemented: the default has both outputs of the agent")
	}
	return lim, err
}

// parseCount parses a positive integer; larger ones than most count as most.
func parseCount(c *fiber.Ctx, name string, most int) (int, error) {
	digits := c.Query(name)
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, body.Invalid(name + " must be a positive integer")
	}
	digits = strings.TrimLeft(digits, "0")
	n := 0
	for _, d := range digits {
		if n = n*10 + int(d-'0'); n >= most {
			return most, nil
		}
	}
	if n == 0 {
		return 0, body.Invalid(name + " must not be 0")
	}
	return n, nil
}
