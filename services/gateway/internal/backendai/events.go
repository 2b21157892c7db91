package backendai

import (
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
	"github.com/millrace/millrace/services/gateway/internal/backendai/sse"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// listeners serves the events of sessions and background tasks.
type listeners struct{ h *Handler }

// register adds the routes of events under a prefix, those of older clients included.
func (l listeners) register(r fiber.Router, at string) {
	r.Get(at+"/events/session", l.sessions)
	r.Get(at+"/stream/session/_/events", l.sessions)
	r.Get(at+"/stream/kernel/_/events", l.sessions)
	r.Get(at+"/events/background-task", l.task)
}

// sessions streams the events of the tenant's sessions, or of one.
func (l listeners) sessions(c *fiber.Ctx) error {
	pick, err := l.filter(c)
	if err != nil {
		return err
	}
	after, err := l.after(c)
	if err != nil {
		return err
	}
	return l.serve(c, after, nil, pick)
}

// task streams the events of the command of a batch session.
func (l listeners) task(c *fiber.Ctx) error {
	ctx, cancel := record.Context(c)
	defer cancel()
	id, ok := session.ParseUUID(query(c, "taskId", "task_id"))
	if !ok {
		return badParams("taskId: must be a UUID")
	}
	if err := l.h.cfg.Operations.Sync(ctx); err != nil {
		return err
	}
	after := l.h.hub.Now() // before the state, so that no event is missing
	st, err := l.h.cfg.Operations.FindSandbox(ctx, auth.From(c), id)
	if _, batch := session.Command(&st); err != nil || !batch {
		return kind.Coded(kind.NotFound, "find task", "", session.NotFound, "No such background task.")
	}
	pick, now := sse.Task(&st)
	return l.serve(c, after, now, pick)
}

// serve streams events.
func (l listeners) serve(c *fiber.Ctx, after sse.Cursor, first []sse.Event, pick func([]sse.Event, *sse.Event) []sse.Event) error {
	return l.h.cfg.Streams.Serve(c, stream.Head{ContentType: textenc.ContentTypeSSE, Headers: [][2]string{
		{fiber.HeaderCacheControl, "no-store"}, {fiber.HeaderXContentTypeOptions, "nosniff"}, {"X-Accel-Buffering", "no"},
	}}, l.h.hub.Listen(auth.From(c).Tenant, after, first, pick), sse.NewEncoder())
}

// after returns the position of the client: that of the event that it got last, or the end.
func (l listeners) after(c *fiber.Ctx) (sse.Cursor, error) {
	last := strings.Clone(c.Get("Last-Event-ID"))
	if last == "" {
		return l.h.hub.Now(), nil
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	if err := l.h.cfg.Operations.Sync(ctx); err != nil {
		return sse.Cursor{}, err
	}
	at, err := sse.ParseCursor(last)
	if err == nil && at.Compare(l.h.hub.Now()) > 0 {
		err = badParams("Last-Event-ID: must be the id of an event")
	}
	return at, err
}

// filter returns the function that selects the events for which the query asks.
func (l listeners) filter(c *fiber.Ctx) (func([]sse.Event, *sse.Event) []sse.Event, error) {
	name, id, owner := query(c, "name", "sessionName"), query(c, "sessionId"), query(c, "ownerAccessKey")
	if box, ok := session.ParseUUID(id); ok {
		name, id = "", session.UUID(box)
	} else if id != "" { // older clients send the name there
		name, id = id, ""
	}
	if err := l.h.checkOwner(c, "listen", "ownerAccessKey", owner); err != nil {
		return nil, err
	}
	if group := query(c, "group", "groupName"); group != "" && group != "*" && group != "default" {
		return nil, kind.Coded(kind.NotFound, "listen", "", session.NotFound, "No such group.")
	}
	prefix := ""
	switch scope := query(c, "scope"); scope {
	case "", "*":
	case "session", "kernel":
		prefix = scope + "_"
	default:
		return nil, badParams("scope: must be *, session or kernel")
	}
	if name == "*" {
		name = ""
	}
	return func(dst []sse.Event, e *sse.Event) []sse.Event {
		if id != "" && e.SessionID != id || name != "" && e.SessionName != name || owner != "" && e.Owner != owner || !strings.HasPrefix(e.Name, prefix) {
			return dst
		}
		return append(dst, *e)
	}, nil
}

// query returns the first of some parameters that is present. It shares no memory with the request.
func query(c *fiber.Ctx, names ...string) string {
	for _, n := range names {
		if v := c.Query(n); v != "" {
			return strings.Clone(v)
		}
	}
	return ""
}
