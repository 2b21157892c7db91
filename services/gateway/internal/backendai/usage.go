package backendai

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// usage is what a session has used, as of its newest sample.
type usage struct {
	cpu    time.Duration
	memory uint64 // bytes, now
	most   uint64 // bytes, the maximum of the samples
	disk   uint64 // bytes
}

// usage returns what a session has used; zero if that is unknown.
func (h *Handler) usage(ctx context.Context, p core.Principal, id sandbox.ID) usage {
	all, err := h.cfg.Operations.RecentUsage(ctx, p, id)
	if err != nil {
		h.cfg.Slog.Warn("read usage failed", "sandbox", id, "err", err)
		return usage{}
	}
	var u usage
	for _, s := range all.Samples {
		u.cpu, u.memory, u.disk = s.CPU, s.MemoryBytes, s.DiskBytes
		u.most = max(u.most, s.MemoryBytes)
	}
	return u
}

// stats returns the numbers that clients show when a session has ended.
func (u usage) stats(st *sandbox.State) fiber.Map {
	return fiber.Map{
		"cpu_used": u.cpu.Milliseconds(), "precpu_used": int64(0),
		"mem_max_bytes": u.most, "mem_cur_bytes": u.memory,
		"net_rx_bytes": st.Used.Received, "net_tx_bytes": st.Used.Sent,
		"io_read_bytes": int64(0), "io_write_bytes": int64(0),
		"io_max_scratch_size": u.disk, "io_cur_scratch_size": u.disk,
	}
}
