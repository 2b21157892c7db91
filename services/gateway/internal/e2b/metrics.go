package e2b

import (
	"math"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// metricBody is E2B's SandboxMetric. Values that no host measures are 0.
type metricBody struct {
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

// metrics converts samples to API metrics: one per sample except the first, which only
// provides the initial CPU time.
func metrics(u *lifecycle.Usage) []metricBody {
	out := []metricBody{}
	for i := 1; i < len(u.Samples); i++ {
		was, s := &u.Samples[i-1], &u.Samples[i]
		pct := 0.0
		if took := s.Time.Sub(was.Time); took > 0 && s.CPU > was.CPU && u.CPUs > 0 {
			pct = 100 * float64(s.CPU-was.CPU) / float64(took) / u.CPUs
		}
		out = append(out, metricBody{
			Timestamp: s.Time.UTC(), TimestampUnix: s.Time.Unix(),
			CPUCount: uint32(math.Ceil(u.CPUs)), CPUUsedPct: math.Round(pct*100) / 100,
			MemUsed: s.MemoryBytes, MemTotal: u.Memory, DiskUsed: s.DiskBytes, DiskTotal: u.Disk,
		})
	}
	return out
}

// sandboxMetrics returns the usage of one sandbox between start and end, in Unix seconds.
func (h *Handler) sandboxMetrics(c *fiber.Ctx) error {
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
	u, err := h.ops.Lifecycle.Usage(c.UserContext(), auth.From(c), id, since, until)
	if err != nil {
		return err
	}
	return c.JSON(metrics(&u))
}

// newestMetrics returns the newest metric of several sandboxes, without those that do not
// exist or were not measured yet.
func (h *Handler) newestMetrics(c *fiber.Ctx) error {
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
	all, err := h.ops.Lifecycle.LastUsages(c.UserContext(), auth.From(c), ids)
	if err != nil {
		return err
	}
	out := make(map[string]metricBody)
	for i := range all {
		if m := metrics(&all[i]); len(m) > 0 {
			out[string(all[i].State.ID)] = m[len(m)-1]
		}
	}
	return c.JSON(fiber.Map{"sandboxes": out})
}
