package tail

import (
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// DefaultKeepalive is the interval of keepalives if the client requests none.
const DefaultKeepalive = 30 * time.Second

// Config configures a Handler.
type Config struct {
	Log      Tailer
	Streams  *stream.Streams
	Operator func(core.Principal) bool // reports whether a principal may see all tenants; nil: none may
}

// Handler serves /v1/events. Its methods may be called concurrently.
type Handler struct{ cfg Config }

// New returns the surface.
func New(cfg Config) *Handler {
	if cfg.Operator == nil {
		cfg.Operator = func(core.Principal) bool { return false }
	}
	return &Handler{cfg: cfg}
}

// Register adds the route. Authentication must run before it.
func (h *Handler) Register(r fiber.Router) { r.Add(fiber.MethodGet, "/v1/events", h.events) }

// events streams a tail.
func (h *Handler) events(c *fiber.Ctx) error {
	now := time.Now()
	f, err := h.filter(c, now)
	if err != nil {
		return err
	}
	enc := &encoder{
		sse:       textenc.WantsSSE(c.Get(fiber.HeaderAccept)),
		after:     f.Since,
		keepalive: textenc.NewKeepaliveTimer(textenc.Keepalive(c.Get(textenc.KeepaliveHeader), DefaultKeepalive)),
	}
	if enc.after.IsZero() {
		enc.after = now
	}
	head := stream.Head{ContentType: textenc.ContentTypeNDJSON, Headers: [][2]string{
		{fiber.HeaderCacheControl, "no-store"}, {fiber.HeaderXContentTypeOptions, "nosniff"}, {"X-Accel-Buffering", "no"},
	}}
	if enc.sse {
		head.ContentType = textenc.ContentTypeSSE
	}
	return h.cfg.Streams.Serve(c, head, newSource(h.cfg.Log, f, h.cfg.Streams.Log(), wanted(c.Query("kind"))), enc)
}

// filter reads which events are requested, and since when. A tenant sees its own; the token
// of a sandbox only those of that sandbox.
func (h *Handler) filter(c *fiber.Ctx, now time.Time) (catalog.TailFilter, error) {
	p := auth.From(c)
	f := catalog.TailFilter{Tenant: strings.Clone(c.Query("tenant")), Follow: record.Flag(c, "follow", true)}
	if p.Sandbox != "" || !h.cfg.Operator(p) {
		if f.Tenant != "" && f.Tenant != p.Tenant {
			return f, kind.New(kind.Denied, "tail", "", "events of other tenants require an operator")
		}
		f.Tenant = p.Tenant
	}
	t := route.Of(c)
	if t.Named != "" && t.Sandbox == "" || p.Sandbox != "" && t.Sandbox != "" && t.Sandbox != p.Sandbox {
		return f, kind.New(kind.NotFound, "tail", "", "sandbox not found")
	}
	if f.Sandbox = t.Sandbox; f.Sandbox == "" {
		f.Sandbox = p.Sandbox
	}
	var err error
	if v := c.Query("process"); v != "" {
		if f.Process, err = process.ParseID(strings.Clone(v)); err != nil {
			return f, err
		}
	}
	v := c.Query("after")
	if last := c.Get("Last-Event-ID"); last != "" {
		v = last
	}
	f.Since, err = parseSince(v, now)
	return f, err
}

// parseSince parses a time (RFC 3339), a duration before now ("10m"), "now", or an empty
// string (no limit). Its errors are Invalid.
func parseSince(s string, now time.Time) (time.Time, error) {
	switch s {
	case "":
		return time.Time{}, nil
	case "now":
		return now, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, kind.New(kind.Invalid, "tail", "", `after: must be a time (RFC 3339), a duration before now ("10m"), or "now"`)
}

// wanted parses a list of kinds: types of events, or "process" and "sandbox" for all
// events of a kind of record. An empty list matches everything.
func wanted(list string) func(*catalog.TailEvent) bool {
	if list == "" {
		return func(*catalog.TailEvent) bool { return true }
	}
	kinds := strings.Split(strings.Clone(list), ",")
	return func(e *catalog.TailEvent) bool {
		return slices.Contains(kinds, e.Stream) || slices.Contains(kinds, typeOf(e))
	}
}
