package envd

import (
	"context"
	"math"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/usage"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/family"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// Sandboxes are the running sandboxes.
type Sandboxes interface {
	WakeWithToken(ctx context.Context, id sandbox.ID, token string) (bool, error)
	Running(ctx context.Context, p core.Principal, id sandbox.ID) (bool, error)
	SandboxEnv(ctx context.Context, p core.Principal, id sandbox.ID) (map[string]string, error)
	RecentUsage(ctx context.Context, p core.Principal, id sandbox.ID) (lifecycle.Usage, error)
}

// Handler serves envd's endpoints, and is middleware of the data plane.
type Handler struct{ sandboxes Sandboxes }

// New returns a handler.
func New(s Sandboxes) *Handler { return &Handler{s} }

// Health reports whether a sandbox runs. For the bearer of its token it resumes a paused
// sandbox with autoResume; others get 403, as from E2B's proxy. It passes on requests that name
// no sandbox.
func (h *Handler) Health(c *fiber.Ctx) error {
	t := route.Of(c)
	if t.Named == "" {
		return c.Next()
	}
	ok, err := h.sandboxes.WakeWithToken(c.UserContext(), t.Sandbox, c.Get("X-Access-Token"))
	switch {
	case kind.Is(err, kind.Denied):
		return httperr.WriteProxied(c, httperr.Proxied{SandboxID: t.Named, Message: kind.Message(err), Code: fiber.StatusForbidden})
	case err != nil:
		return err
	case !ok:
		return httperr.WriteProxied(c, httperr.Gone(t.Named))
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// Env returns the environment that every process of the sandbox has.
func (h *Handler) Env(c *fiber.Ctx) error {
	id, err := h.named(c)
	if err != nil {
		return err
	}
	env, err := h.sandboxes.SandboxEnv(c.UserContext(), auth.From(c), id)
	if err != nil {
		return err
	}
	return c.JSON(env)
}

// metricsBody is envd's metrics of a machine, here of the sandbox.
type metricsBody struct {
	TS          int64   `json:"ts"` // time of the measurement
	CPUCount    uint32  `json:"cpu_count"`
	CPUUsedPct  float64 `json:"cpu_used_pct"`
	MemTotal    uint64  `json:"mem_total"`
	MemUsed     uint64  `json:"mem_used"`
	MemCache    uint64  `json:"mem_cache"`
	MemTotalMiB uint64  `json:"mem_total_mib"`
	MemUsedMiB  uint64  `json:"mem_used_mib"`
	DiskUsed    uint64  `json:"disk_used"`
	DiskTotal   uint64  `json:"disk_total"`
}

// Metrics returns the newest sample of a sandbox, which is some seconds old. It passes on
// requests that name no sandbox.
func (h *Handler) Metrics(c *fiber.Ctx) error {
	if route.Of(c).Named == "" {
		return c.Next()
	}
	id, err := h.named(c)
	if err != nil {
		return err
	}
	u, err := h.sandboxes.RecentUsage(c.UserContext(), auth.From(c), id)
	if err != nil {
		return err
	}
	m := usage.Metric{Timestamp: time.Now(), CPUCount: uint32(math.Ceil(u.CPUs)), MemTotal: u.Memory, DiskTotal: u.Disk}
	if all := usage.Metrics(&u); len(all) > 0 {
		m = all[len(all)-1]
	}
	return c.JSON(metricsBody{
		TS: m.Timestamp.Unix(), CPUCount: m.CPUCount, CPUUsedPct: m.CPUUsedPct,
		MemTotal: m.MemTotal, MemUsed: m.MemUsed, MemCache: m.MemCache, MemTotalMiB: m.MemTotal >> 20, MemUsedMiB: m.MemUsed >> 20,
		DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
	})
}

// named returns the sandbox that a request for envd names.
func (h *Handler) named(c *fiber.Ctx) (sandbox.ID, error) {
	if id, ok := route.Sandbox(c); ok {
		return id, nil
	}
	if id := auth.From(c).Sandbox; id != "" {
		return id, nil
	}
	return "", wire.Invalid("the request names no sandbox")
}

// Guard is the middleware that responds with 502 if the sandbox of a data plane request is
// not running: SDKs detect its end that way. It resumes a paused sandbox with autoResume.
// Requests that only read records pass: records outlive their sandbox.
func (h *Handler) Guard(c *fiber.Ctx) error {
	t, want := route.Of(c), route.Part(c).Sandbox
	if t.Named == "" || want == family.AnyState {
		return c.Next()
	}
	ok, err := h.sandboxes.Running(c.UserContext(), auth.From(c), t.Sandbox)
	switch {
	case want == family.Resumed: // waiting for more output requires the process to run
		return c.Next()
	case err != nil:
		return err
	case !ok:
		return httperr.WriteProxied(c, httperr.Gone(t.Named))
	}
	return c.Next()
}
