package e2b

import (
	"math"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// Proxy is the middleware that does, before anybody is asked who he is, what
// E2B's proxy does for the data plane's port: envd's internal routes are
// nobody's; /health tells whether a sandbox runs.
func (h *Handler) Proxy(c *fiber.Ctx) error {
	path := strings.TrimRight(c.Path(), "/")
	switch path {
	case "/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade":
		return fiber.ErrNotFound
	}
	if t := route.Of(c); t.Named != "" && path == "/health" {
		return h.health(c, t)
	}
	return c.Next()
}

// health answers whether a sandbox runs. One that is paused and resumes by itself is
// resumed for the bearer of its token; others get 403, as from E2B's proxy.
func (h *Handler) health(c *fiber.Ctx, t route.Target) error {
	ok, err := h.core.WakeBy(c.UserContext(), t.Sandbox, c.Get("X-Access-Token"))
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

// envs answers with what every process of the sandbox finds in its environment.
func (h *Handler) envs(c *fiber.Ctx) error {
	id, err := h.named(c)
	if err != nil {
		return err
	}
	env, err := h.core.SandboxEnv(c.UserContext(), auth.From(c), id)
	if err != nil {
		return err
	}
	return c.JSON(env)
}

// envdMetrics is what envd says of the machine; here, of the sandbox.
type envdMetrics struct {
	TS          int64   `json:"ts"` // when it was measured
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

// EnvdMetrics answers with the newest that its host measured of a sandbox, which
// is some seconds old. A request that names no sandbox is not for it, and goes on.
func (h *Handler) EnvdMetrics(c *fiber.Ctx) error {
	if route.Of(c).Named == "" {
		return c.Next()
	}
	id, err := h.named(c)
	if err != nil {
		return err
	}
	u, err := h.core.Recent(c.UserContext(), auth.From(c), id)
	if err != nil {
		return err
	}
	m := metricBody{Timestamp: time.Now(), CPUCount: uint32(math.Ceil(u.CPUs)), MemTotal: u.Memory, DiskTotal: u.Disk}
	if all := metrics(&u); len(all) > 0 {
		m = all[len(all)-1]
	}
	return c.JSON(envdMetrics{
		TS: m.Timestamp.Unix(), CPUCount: m.CPUCount, CPUUsedPct: m.CPUUsedPct,
		MemTotal: m.MemTotal, MemUsed: m.MemUsed, MemCache: m.MemCache, MemTotalMiB: m.MemTotal >> 20, MemUsedMiB: m.MemUsed >> 20,
		DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
	})
}

// named is the sandbox that a request for envd is for.
func (h *Handler) named(c *fiber.Ctx) (sandbox.ID, error) {
	if id, ok := route.Sandbox(c); ok {
		return id, nil
	}
	if id := auth.From(c).Sandbox; id != "" {
		return id, nil
	}
	return "", invalid("the request names no sandbox")
}

// Guard is the middleware that answers 502 where a request for a sandbox's data
// plane finds no such sandbox running, which is how SDKs learn of its end; a
// paused one is resumed for it if its creator wanted that. What reads records
// goes on: they outlive their sandbox.
func (h *Handler) Guard(c *fiber.Ctx) error {
	path := c.Path()
	if !auth.DataPlane(path) && path != "/metrics" || strings.HasPrefix(path, "/commands") {
		return c.Next()
	}
	t := route.Of(c)
	if t.Named == "" {
		return c.Next()
	}
	ok, err := h.core.Running(c.UserContext(), auth.From(c), t.Sandbox)
	if path == "/process.Process/Connect" { // who waits for more of it wants it to run
		return c.Next()
	}
	if err != nil {
		return err
	}
	if !ok {
		return httperr.WriteProxied(c, httperr.Gone(t.Named))
	}
	return c.Next()
}
