package backendai

import (
	"context"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/webhook"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
	"github.com/millrace/millrace/services/gateway/internal/backendai/sse"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// renames is how often a rename may compete with others for its name.
const renames = 8

// renamer gives sessions other names.
type renamer struct{ *Handler }

// rename gives a session another name, which no other session of the tenant has.
func (h renamer) rename(c *fiber.Ctx) error {
	name := query(c, "name", "session_name")
	if err := session.CheckName(name); err != nil {
		return err
	}
	p, st, err := h.found(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	for range renames {
		live, last, ok := h.named(p, name)
		switch {
		case ok && live.ID == st.ID:
			return c.SendStatus(http.StatusNoContent)
		case ok:
			return kind.Coded(kind.Conflict, "rename session", "", session.Exists, "The session already exists.")
		}
		err := h.cfg.Creator.GiveName(ctx, p, h.next(p, name, last), st.ID, session.NameFor(name))
		if err == nil {
			return c.SendStatus(http.StatusNoContent)
		}
		if !kind.Is(err, kind.Conflict) {
			return err
		}
		if err := h.cfg.Operations.Sync(ctx); err != nil {
			return err
		}
	}
	return kind.New(kind.Unavailable, "rename session", "", "too many sessions want the name: try again")
}

// namedLog is the log with the names of sessions that were renamed.
type namedLog struct {
	sse.Log
	all func(keep func(*sandbox.State) bool) []sandbox.State
}

// apply gives the sessions of events their names, and drops the records that only give names.
func (l namedLog) apply(events []catalog.SandboxEvent) []catalog.SandboxEvent {
	if len(events) == 0 {
		return nil
	}
	names := session.NamesOf(l.all(func(s *sandbox.State) bool { return s.Request.Names() != "" }))
	out := events[:0]
	for _, e := range events {
		if e.State.Request.Names() == "" {
			names.Apply(&e.State)
			out = append(out, e)
		}
	}
	return out
}

// FollowSandboxes implements [sse.Log].
func (l namedLog) FollowSandboxes(ctx context.Context, after uint64, begin func() (wanted func(tenant string) bool), add func(all []catalog.SandboxEvent, rev uint64)) error {
	return l.Log.FollowSandboxes(ctx, after, begin, func(all []catalog.SandboxEvent, rev uint64) { add(l.apply(all), rev) })
}

// SandboxEvents implements [sse.Log].
func (l namedLog) SandboxEvents(ctx context.Context, tenant string, after webhook.Position, until uint64) ([]catalog.SandboxEvent, webhook.Position, error) {
	all, read, err := l.Log.SandboxEvents(ctx, tenant, after, until)
	return l.apply(all), read, err
}
