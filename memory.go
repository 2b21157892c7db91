package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// The store reads and writes by blocks of 8 MiB and keeps them for seconds:
// without a limit, a flood of output makes garbage of 1 to 3 GiB.
const (
	leastMemory  = 256 << 20
	mostMemory   = 1 << 30
	memoryFactor = 8 // of the machine's memory, the part that is ours without asking

	// Each collection takes all CPUs that this program leaves idle, from sandboxes, too, and
	// commands that start then wait for it.
	garbage = 200 // percent of what lives, before the collector runs

	// A million commands on record are 0.9 GiB that live. With no room beside that the
	// collector would run all the time.
	leastGarbage = 2               // half of what lives,
	mostOfAll    = 2               // as long as that is no more than half of the machine's memory
	memoryLook   = 1 * time.Second // between two looks at what lives
)

// limitMemory has the collector keep the memory of this program within its part
// of the machine's, as far as what lives allows, and run rarely within that, until ctx ends;
// GOMEMLIMIT and GOGC say otherwise.
func limitMemory(ctx context.Context, getenv func(string) string) {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	if getenv("GOMEMLIMIT") != "" {
		return
	}
	var machine int64
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		machine = memoryOf(string(b))
	}
	limit := memoryLimit(machine, 0)
	debug.SetMemoryLimit(limit)
	go follow(ctx, machine, limit)
}

// follow moves the limit with what lives. A change takes a moment in which nothing runs,
// so that small ones are left out.
func follow(ctx context.Context, machine, limit int64) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	look := time.NewTicker(memoryLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		metrics.Read(live)
		if live[0].Value.Kind() != metrics.KindUint64 {
			return
		}
		want := memoryLimit(machine, int64(live[0].Value.Uint64()))
		if d := want - limit; max(d, -d) > limit/16 {
			limit = want
			debug.SetMemoryLimit(limit)
		}
	}
}

// memoryLimit is the limit on a machine with that much memory (0: that is not known) where
// so much lives; all in bytes.
func memoryLimit(machine, live int64) int64 {
	if machine == 0 {
		machine = mostMemory * memoryFactor
	}
	limit := min(max(machine/memoryFactor, leastMemory), mostMemory)
	return max(limit, min(live+live/leastGarbage, machine/mostOfAll))
}

// memoryOf is a machine's memory in bytes, by what it says of that; 0: it does not.
func memoryOf(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "MemTotal:" {
			continue
		}
		if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
			return kib << 10
		}
	}
	return 0
}
