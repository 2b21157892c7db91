package dataplane

import (
	"context"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

const (
	sigKill = 9
	// killTimeout bounds the end of a command whose client is gone.
	killTimeout = 15 * time.Second
)

// shell returns the spec of a command. A shell joins its outputs into one pipe, which keeps their
// order.
func shell(command string) process.Spec {
	return process.Spec{Cmd: "/bin/sh", Args: []string{"-c", `exec 2>&1; test -x /bin/bash && exec /bin/bash -l -c "$0"; exec /bin/sh -l -c "$0"`, command}}
}

// exec runs a command and responds with its output.
func (h *Handler) exec(c *fiber.Ctx) error {
	var command string
	if err := body.Decode(c, body.Field{Name: "command", Into: &command}); err != nil {
		return err
	}
	if strings.TrimSpace(command) == "" {
		return body.Invalid("command is required")
	}
	spec := shell(command)
	if err := spec.Validate(); err != nil {
		return err
	}
	st, err := h.used(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	p, lasting := auth.From(c), context.WithoutCancel(c.UserContext()) // the command outlives the handler
	id, src, err := h.Commands.Start(ctx, p, st.ID, spec, procs.StartOptions{})
	if err != nil {
		return err
	}
	kill := func() {
		ctx, cancel := context.WithTimeout(lasting, killTimeout)
		defer cancel()
		if err := h.Commands.Signal(ctx, p, id, sigKill); err != nil && !kind.Is(err, kind.NotFound) {
			h.Streams.Log().Warn("end command of a closed request failed", "process", id, "err", err)
		}
	}
	again := func(ctx context.Context) (stream.Source, error) { return h.Commands.Read(ctx, p, id, 0) }
	head := stream.Head{ContentType: fiber.MIMEApplicationJSONCharsetUTF8, Headers: record.StreamHeaders(id, 0)}
	return h.Streams.Serve(c, head, &source{Source: src, again: again, kill: kill}, &encoder{})
}
