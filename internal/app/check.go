package app

import (
	"fmt"
	"math"
	"os"
	"time"

	"github.com/millrace/millrace/services/gateway"
	"github.com/millrace/millrace/services/hostd"
	"github.com/millrace/millrace/services/scheduler"
)

// setting is a flag's value and whether it is valid. Settings are checked before anything
// starts: the error of a service itself would come late, among the messages of the other
// services that stop with it.
type setting struct {
	flag  string
	value any
	ok    bool
	want  string
}

// firstInvalid returns an error for the first invalid setting.
func firstInvalid(all ...setting) error {
	for _, s := range all {
		if !s.ok {
			return fmt.Errorf("--%s %v: must be %s", s.flag, s.value, s.want)
		}
	}
	return nil
}

// leastRetention is above the minimum of NATS, 100 ms, and far below any useful value.
const leastRetention = time.Second

func (s *streams) check() error {
	return firstInvalid(setting{"retention", s.retention, s.retention == 0 || s.retention >= leastRetention, "0 or at least 1s"})
}

func checkGateway(g *gateway.Config) error {
	if g.APIKey != "" {
		if err := gateway.CheckAPIKey(g.APIKey); err != nil {
			return err
		}
	}
	if err := g.Recording.Check(); err != nil {
		return err
	}
	if err := g.Public.Check(); err != nil {
		return err
	}
	l := &g.Limits
	return firstInvalid(
		setting{"default-cpus", l.CPUs, l.CPUs == 0 || l.CPUs >= gateway.MinCPUs && !math.IsInf(l.CPUs, 0), fmt.Sprintf("0 or at least %v CPUs", gateway.MinCPUs)},
		setting{"default-memory", l.MemoryMB, l.MemoryMB == 0 || l.MemoryMB >= gateway.MinMemory, fmt.Sprintf("0 or at least %d MiB", gateway.MinMemory)},
		setting{"default-pids", l.PIDs, l.PIDs == 0 || l.PIDs >= gateway.MinPIDs, fmt.Sprintf("0 or at least %d processes", gateway.MinPIDs)},
		setting{"max-timeout", g.MaxTimeout, g.MaxTimeout == 0 || g.MaxTimeout >= time.Second, "0 or at least 1s"}, // clients send whole seconds
		setting{"queue-timeout", g.QueueTimeout, g.QueueTimeout >= 0, "0 or more"},
		setting{"drain-timeout", g.DrainTimeout, g.DrainTimeout >= 0, "0 or more"},
	)
}

func checkScheduler(s *scheduler.Config) error {
	factor := func(flag string, f float64) setting {
		return setting{flag, f, f >= 0 && !math.IsInf(f, 0), "a finite number, 0 or more"}
	}
	return firstInvalid(factor("cpu-overcommit", s.CPUOvercommit), factor("memory-overcommit", s.MemoryOvercommit))
}

func (h *host) check() error {
	if err := hostd.CheckDrivers(h.drivers); err != nil {
		return err
	}
	if _, _, err := h.egressSettings(); err != nil {
		return err
	}
	if _, _, err := h.networkSettings(); err != nil {
		return err
	}
	if err := firstInvalid(setting{"capacity", h.capacity, h.capacity >= 0, "0 or more"}); err != nil {
		return err
	}
	if h.shim == "" || h.shim == hostd.ShimSelf {
		return nil
	}
	st, err := os.Stat(h.shim)
	if err != nil {
		return fmt.Errorf("--shim: %w", err)
	}
	return firstInvalid(setting{"shim", h.shim, st.Mode().IsRegular(), "an executable file"})
}
