package main

import (
	"fmt"
	"math"
	"os"
	"time"

	"github.com/millrace/millrace/services/gateway"
	"github.com/millrace/millrace/services/hostd"
	"github.com/millrace/millrace/services/scheduler"
)

// setting is one that was given, and whether a service can work with it. They
// are looked at before anything is started: what a service itself says of them
// comes late, behind the noise of the others that end with it.
type setting struct {
	flag  string
	value any
	ok    bool
	want  string
}

// refuse is an error for the first that cannot work.
func refuse(all ...setting) error {
	for _, s := range all {
		if !s.ok {
			return fmt.Errorf("--%s %v: %s", s.flag, s.value, s.want)
		}
	}
	return nil
}

// leastRetention is above what NATS takes, 100 ms, and far below what is of use.
const leastRetention = time.Second

func (s *streams) check() error {
	return refuse(setting{"retention", s.retention, s.retention == 0 || s.retention >= leastRetention, "0, or a second and more"})
}

func checkGateway(g *gateway.Config) error {
	if g.APIKey != "" {
		if err := gateway.CheckAPIKey(g.APIKey); err != nil {
			return err
		}
	}
	l := &g.Limits
	return refuse(
		setting{"default-cpus", l.CPUs, l.CPUs == 0 || l.CPUs >= gateway.MinCPUs && !math.IsInf(l.CPUs, 0), fmt.Sprintf("0, or %v CPUs and more", gateway.MinCPUs)},
		setting{"default-memory", l.MemoryMB, l.MemoryMB == 0 || l.MemoryMB >= gateway.MinMemory, fmt.Sprintf("0, or %d MiB and more", gateway.MinMemory)},
		setting{"default-pids", l.PIDs, l.PIDs == 0 || l.PIDs >= gateway.MinPIDs, fmt.Sprintf("0, or %d processes and more", gateway.MinPIDs)},
		setting{"max-timeout", g.MaxTimeout, g.MaxTimeout == 0 || g.MaxTimeout >= time.Second, "0, or a second and more"}, // clients name whole seconds
		setting{"queue-timeout", g.QueueTimeout, g.QueueTimeout >= 0, "not negative"},
		setting{"drain-timeout", g.DrainTimeout, g.DrainTimeout >= 0, "not negative"},
	)
}

func checkScheduler(s *scheduler.Config) error {
	factor := func(flag string, f float64) setting {
		return setting{flag, f, f >= 0 && !math.IsInf(f, 0), "0, or a number above it"}
	}
	return refuse(factor("cpu-overcommit", s.CPUOvercommit), factor("memory-overcommit", s.MemoryOvercommit))
}

func (h *host) check() error {
	if err := hostd.CheckDrivers(h.drivers); err != nil {
		return err
	}
	if _, _, err := h.reach(); err != nil {
		return err
	}
	if _, _, err := h.interfaces(); err != nil {
		return err
	}
	if err := refuse(setting{"capacity", h.capacity, h.capacity >= 0, "not negative"}); err != nil {
		return err
	}
	if h.shim == "" || h.shim == hostd.ShimSelf {
		return nil
	}
	st, err := os.Stat(h.shim)
	if err != nil {
		return fmt.Errorf("--shim: %w", err)
	}
	return refuse(setting{"shim", h.shim, st.Mode().IsRegular(), "no program"})
}
