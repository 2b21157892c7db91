package usage

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// Usages are the samples of sandboxes' usage.
type Usages interface {
	Usage(ctx context.Context, p core.Principal, id sandbox.ID, since, until time.Time) (lifecycle.Usage, error)
	LastUsages(ctx context.Context, p core.Principal, ids []sandbox.ID) ([]lifecycle.Usage, error)
}

// Handler serves the usage of sandboxes.
type Handler struct{ usages Usages }

// New returns a handler.
func New(u Usages) *Handler { return &Handler{u} }

// Metric is E2B's SandboxMetric. Values that no host measures are 0.
type Metric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      uint32    `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"` // of all CPUs
	MemUsed       uint64    `json:"memUsed"`
	MemTotal      uint64    `json:"memTotal"`
	MemCache      uint64    `json:"memCache"`
	DiskUsed      uint64    `json:"diskUsed"`
	DiskTotal     uint64    `json:"diskTotal"`
}

// maxMetrics is the maximum number of sandboxes in one request.
const maxMetrics = 100

// Metrics converts samples to API metrics: one per sample except the first, which only
// provides the initial CPU time.
func Metrics(u *lifecycle.Usage) []Metric {
	out := []Metric{}
	for i := 1; i < len(u.Samples); i++ {
		was, s := &u.Samples[i-1], &u.Samples[i]
		pct := 0.0
		if took := s.Time.Sub(was.Time); took > 0 && s.CPU > was.CPU && u.CPUs > 0 {
			pct = 100 * float64(s.CPU-was.CPU) / float64(took) / u.CPUs
		}
		out = append(out, Metric{
			Timestamp: s.Time.UTC(), TimestampUnix: s.Time.Unix(),
			CPUCount: uint32(math.Ceil(u.CPUs)), CPUUsedPct: math.Round(pct*100) / 100,
			MemUsed: s.MemoryBytes, MemTotal: u.Memory, DiskUsed: s.DiskBytes, DiskTotal: u.Disk,
		})
	}
	return out
}

// Sandbox returns the usage of one sandbox between start and end, in Unix seconds.
func (h *Handler) Sandbox(c *fiber.Ctx) error {
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return err
	}
	since, err := wire.UnixSeconds(c, "start")
	if err != nil {
		return err
	}
	until, err := wire.UnixSeconds(c, "end")
	if err != nil {
		return err
	}
	if !since.IsZero() && !until.IsZero() && until.Before(since) {
		return wire.Invalid("end is before start")
	}
	u, err := h.usages.Usage(c.UserContext(), auth.From(c), id, since, until)
	if err != nil {
		return err
	}
	return c.JSON(Metrics(&u))
}

// Newest returns the newest metric of several sandboxes, without those that do not
// exist or were not measured yet.
func (h *Handler) Newest(c *fiber.Ctx) error {
	var ids []sandbox.ID
	for s := range strings.SplitSeq(c.Query("sandbox_ids"), ",") {
		id, err := route.Parse(s)
		if err != nil {
			return wire.Invalid("sandbox_ids must be ids of sandboxes, with commas")
		}
		ids = append(ids, id)
	}
	if len(ids) > maxMetrics {
		return wire.Invalid("at most %d sandbox_ids", maxMetrics)
	}
	all, err := h.usages.LastUsages(c.UserContext(), auth.From(c), ids)
	if err != nil {
		return err
	}
	out := make(map[string]Metric)
	for i := range all {
		if m := Metrics(&all[i]); len(m) > 0 {
			out[string(all[i].State.ID)] = m[len(m)-1]
		}
	}
	return c.JSON(fiber.Map{"sandboxes": out})
}
