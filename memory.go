package main

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
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
)

// limitMemory has the collector keep the memory of this program within its part
// of the machine's, as far as what lives allows, and run rarely within that; GOMEMLIMIT and
// GOGC say otherwise.
func limitMemory(getenv func(string) string) {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	if getenv("GOMEMLIMIT") != "" {
		return
	}
	limit := int64(mostMemory)
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		limit = memoryLimit(string(b))
	}
	debug.SetMemoryLimit(limit)
}

// memoryLimit is the limit on a machine that says this of its memory.
func memoryLimit(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "MemTotal:" {
			continue
		}
		if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
			return min(max(kib<<10/memoryFactor, leastMemory), mostMemory)
		}
	}
	return mostMemory
}
