package app

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// NATS reads and writes blocks of 8 MiB and keeps them for seconds: without a memory
// limit, a flood of output leaves 1 to 3 GiB of garbage.
const (
	leastMemory  = 256 << 20
	mostMemory   = 1 << 30
	memoryFactor = 8 // the default limit is this fraction of the machine's memory

	// A collection uses all idle CPUs, which sandboxes need too, and delays commands that
	// start meanwhile.
	garbage      = 200 // GOGC in percent
	startGarbage = 100 // at the start, which has much to read and delays no command

	// A million recorded commands take 0.3 GiB of live heap, and a flood more. Without headroom above that
	// the collector would run all the time.
	leastGarbage   = 2               // headroom is at least half of the live heap,
	mostOfAll      = 2               // while the limit is at most half of the machine's memory
	memoryInterval = 1 * time.Second // interval between reads of the live heap's size
)

// limitMemory keeps this program's memory within a fraction of the machine's, or above the
// live heap if that is larger, and makes the garbage collector run rarely within that,
// until ctx ends. GOMEMLIMIT and GOGC override it. After a load it returns the memory to the
// system.
func limitMemory(ctx context.Context, getenv func(string) string) {
	started := func() {}
	if getenv("GOGC") == "" {
		debug.SetGCPercent(startGarbage)
		started = func() { debug.SetGCPercent(garbage) }
	}
	go returnMemory(ctx, started)
	if getenv("GOMEMLIMIT") != "" {
		return
	}
	var machine int64
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		machine = memoryOf(string(b))
	}
	limit := memoryLimit(machine, 0)
	debug.SetMemoryLimit(limit)
	go adjustLimit(ctx, machine, limit)
}

// adjustLimit adjusts the limit to the live heap. A change stops the world, so small changes
// are skipped.
func adjustLimit(ctx context.Context, machine, limit int64) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	look := time.NewTicker(memoryInterval)
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

// memoryLimit returns the limit for a machine's memory (0: unknown) and a live heap, all in
// bytes.
func memoryLimit(machine, live int64) int64 {
	if machine == 0 {
		machine = mostMemory * memoryFactor
	}
	limit := min(max(machine/memoryFactor, leastMemory), mostMemory)
	return max(limit, min(live+live/leastGarbage, machine/mostOfAll))
}

// memoryOf returns the machine's memory in bytes from /proc/meminfo; 0 if it is missing.
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
