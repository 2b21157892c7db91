//go:build linux

package drivertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// Bench measures the cost of a sandbox:
//
//   - the time from Create to the first response of its shim, and to the end of its
//     first command;
//   - the time of `true` in it, of a pause, a resume and Destroy, and, where supported, of
//     a snapshot and of an instance made from it;
//   - the times of Create and Destroy for a hundred at once;
//   - the memory and CPU time of an idle one.
func Bench(b *testing.B, d driver.Driver) {
	b.Helper()
	BenchBurst(b, d, 100)
}

// BenchBurst is Bench for a driver of which the machine cannot run a hundred instances.
func BenchBurst(b *testing.B, d driver.Driver, burst int) {
	b.Helper()
	caps, err := d.Probe(b.Context())
	if err != nil {
		b.Skip(err)
	}
	b.Log(caps.Notes)
	m := &meter{b: b, d: d, root: b.TempDir(), took: map[string][]time.Duration{}}
	if in := m.create("first-", ""); in != nil { // fills permanent caches
		m.idle(in)
		m.time("first-destroy", func() error { return in.Destroy(context.Background()) })
	}
	for b.Loop() {
		in := m.create("", "")
		m.time("true", func() error { return runIn(b.Context(), in, "true") })
		if st, err := in.Stats(b.Context()); err == nil {
			m.memory = append(m.memory, st.MemoryBytes)
		}
		if caps.Pause {
			m.time("pause", func() error { return in.Pause(b.Context()) })
			m.time("resume", func() error { return in.Resume(b.Context()) })
		}
		if caps.Files {
			m.fork(in, "", false)
		}
		if caps.Memory {
			m.fork(in, "memory-", true)
		}
		m.time("destroy", func() error { return in.Destroy(context.Background()) })
	}
	m.burst(burst)
	m.report()
}

// meter collects durations.
type meter struct {
	b    *testing.B
	d    driver.Driver
	root string

	mu     sync.Mutex
	took   map[string][]time.Duration // guarded by mu
	memory []uint64
	idleUS float64 // CPU time per second
}

func (m *meter) time(what string, f func() error) {
	start := time.Now()
	err := f()
	took := time.Since(start)
	if err != nil {
		m.b.Errorf("%s: %v", what, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took[what] = append(m.took[what], took)
}

// create makes an instance and runs its first command; prefix begins the names of
// the measurements.
func (m *meter) create(prefix, from string) driver.Instance {
	s := driver.Spec{ID: sandbox.NewID(), ShimPath: self, ShimArgs: []string{shimArg}, MemoryMiB: 512, CPUMilli: 1000, From: from}
	s.Dir = filepath.Join(m.root, string(s.ID))
	if err := os.Mkdir(s.Dir, 0o700); err != nil {
		m.b.Error(err)
	}
	var in driver.Instance
	m.time(prefix+"create+true", func() error {
		m.time(prefix+"create", func() (err error) { in, err = m.d.Create(m.b.Context(), s); return err })
		if in == nil {
			return errors.New("no instance to run the command in")
		}
		return runIn(m.b.Context(), in, "true")
	})
	return in
}

// idle measures the CPU time of an idle instance.
func (m *meter) idle(in driver.Instance) {
	const each = 10 * time.Second
	before, err := in.Stats(m.b.Context())
	<-time.After(each)
	after, err2 := in.Stats(m.b.Context())
	if err := errors.Join(err, err2); err != nil {
		m.b.Error(err)
	}
	m.idleUS = float64((after.CPU - before.CPU).Microseconds()) / each.Seconds()
}

// fork takes a snapshot of an instance with a hundred files of 10 KB, and makes
// another from it, with the memory or without.
func (m *meter) fork(in driver.Instance, prefix string, memory bool) {
	if err := runIn(m.b.Context(), in, "sh", "-c", "cd $HOME && for i in $(seq 100); do head -c 10k /dev/zero > $i; done"); err != nil {
		m.b.Error(err)
	}
	dir, err := os.MkdirTemp(m.root, "snapshot-")
	if err != nil {
		m.b.Error(err)
	}
	m.time(prefix+"snapshot", func() error { return in.Snapshot(m.b.Context(), dir, memory) })
	if forked := m.create(prefix+"fork-", dir); forked != nil {
		if err := forked.Destroy(context.Background()); err != nil {
			m.b.Error(err)
		}
	}
}

// burst makes n instances at once.
func (m *meter) burst(n int) {
	var wg sync.WaitGroup
	all := make([]driver.Instance, n)
	start := time.Now()
	for i := range all {
		wg.Go(func() { all[i] = m.create("burst-", "") })
	}
	wg.Wait()
	m.b.ReportMetric(float64(n)/time.Since(start).Seconds(), "burst-per-s")
	for _, in := range all {
		if in == nil {
			continue
		}
		if err := in.Destroy(context.Background()); err != nil {
			m.b.Error(err)
		}
	}
}

func (m *meter) report() {
	m.b.ReportMetric(m.idleUS, "idle-us-per-s")
	for what, all := range m.took {
		slices.Sort(all)
		m.b.ReportMetric(milliseconds(all[len(all)/2]), what+"-p50-ms")
		m.b.ReportMetric(milliseconds(all[len(all)*99/100]), what+"-p99-ms")
	}
	slices.Sort(m.memory)
	if n := len(m.memory); n > 0 {
		m.b.ReportMetric(float64(m.memory[n/2])/(1<<20), "idle-MiB")
	}
	m.b.ReportMetric(0, "ns/op")
}

// runIn runs a command in an instance.
func runIn(ctx context.Context, in driver.Instance, args ...string) error {
	r, err := trySend(ctx, in, request{Args: args, UID: -1})
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("%v ended with %d: %s", args, r.Code, r.Out)
	}
	return err
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
