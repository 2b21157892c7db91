package backendai

import (
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// withKey calls do, which reads files with these names. If one of them is the key for the service
// sshd, which clients download before they connect, withKey makes it when it does not exist.
func (h *Handler) withKey(c *fiber.Ctx, names []string, do func() error) error {
	err := do()
	if !kind.Is(err, kind.NotFound) || !slices.ContainsFunc(names, func(n string) bool { return strings.TrimPrefix(n, "./") == session.KeyFile }) {
		return err
	}
	if failed := h.makeKey(c); failed != nil {
		h.cfg.Slog.Warn("make key file failed", "err", failed)
		return err
	}
	return do()
}

// makeKey makes the key file of a session, and waits for it. The session's template may have no
// sshd.
func (h *Handler) makeKey(c *fiber.Ctx) error {
	p, st, err := h.found(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	command, user := session.KeyCommand()
	spec := procs.Shell(command)
	spec.User = user
	_, src, err := h.cfg.Operations.Start(ctx, p, st.ID, spec, procs.StartOptions{})
	if err != nil {
		return err
	}
	defer src.Close()
	for {
		switch _, err := src.Next(ctx, record.CallTimeout); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
