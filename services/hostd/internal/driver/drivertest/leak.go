//go:build linux

package drivertest

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// shimPID reads it from the state file, whose name and fields are promised to
// people who look for a sandbox's processes.
func shimPID(t *testing.T, sp driver.Spec) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(sp.Dir, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	var state struct{ PID int }
	if err := json.Unmarshal(b, &state); err != nil || state.PID <= 0 {
		t.Fatalf("state %q: %v", b, err)
	}
	return state.PID
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

func (s *suite) fifty(t *testing.T) {
	d := s.newDriver(t)
	once := func() {
		sp, _ := spec(t)
		in, err := d.Create(t.Context(), sp)
		if err != nil {
			t.Errorf("create: %v", err)
			return
		}
		if err := in.Destroy(context.Background()); err != nil {
			t.Errorf("destroy: %v", err)
		}
		checkClean(t, sp)
	}
	once() // prepares what is kept for good
	before := descriptors(t)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			for range 10 {
				once()
			}
		})
	}
	wg.Wait()
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func (s *suite) limits(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		if !caps.MemoryLimit || !caps.CPULimit || !caps.PidsLimit {
			t.Skipf("there are none for all three: %v", caps.Notes)
		}
		b := s.create(t, func(sp *driver.Spec) { sp.MemoryMiB, sp.CPUMilli, sp.OOM = 128, 500, true })
		if got := ask(t, b.Instance, request{OOM: true}).Out; !strings.Contains(got, "oom_kill 0\n") {
			t.Errorf("before: %q", got)
		}
		// tail holds the whole of an endless line.
		if got := b.sh(t, "head -c 300m /dev/zero | tail | wc -c; echo shim lives"); strings.Contains(got, "314572800") || !strings.Contains(got, "shim lives") {
			t.Errorf("300 MB fit into 128 MiB, or the shim went with them: %q", got)
		}
		if got := ask(t, b.Instance, request{OOM: true}).Out; !strings.Contains(got, "oom_kill 1\n") {
			t.Errorf("after: %q", got)
		}
	}
}
