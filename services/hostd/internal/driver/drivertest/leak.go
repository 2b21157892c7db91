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
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// stateFile is an instance's state file, whose name and fields are documented for operators who
// look for a sandbox's processes.
type stateFile struct {
	PID     int
	Cgroups []string
}

func readState(t *testing.T, sp driver.Spec) (n stateFile) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(sp.Dir, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &n); err != nil || n.PID <= 0 {
		t.Fatalf("state %q: %v", b, err)
	}
	return n
}

func shimPID(t *testing.T, sp driver.Spec) int { t.Helper(); return readState(t, sp).PID }

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// testLeaks creates and destroys Scale.Creates instances, five at a time, and compares the
// state of the host.
func (s *suite) testLeaks(t *testing.T) {
	d := s.newDriver(t)
	var made sync.Map // ids
	once := func(i int) {
		sp, root := spec(t)
		made.Store(string(sp.ID), true)
		if i%10 == 0 { // with a disk of its own, where possible
			sp.DiskMiB = 16
		}
		in, err := d.Create(t.Context(), sp)
		if err != nil {
			t.Errorf("create: %v", err)
			return
		}
		if err := in.Destroy(context.Background()); err != nil {
			t.Errorf("destroy: %v", err)
		}
		if left, err := os.ReadDir(sp.Dir); err != nil || len(left) > 0 {
			t.Errorf("remaining in the directory: %v, %v", left, err)
		}
		os.RemoveAll(root)
		checkNoLoops(t, sp.ID)
	}
	once(0) // fills permanent caches
	before := countLeakable(t)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			for i := range s.scale.Creates / 5 {
				if once(i); t.Failed() {
					return
				}
			}
		})
	}
	wg.Wait()
	checkNoLeaks(t, before)
	// Other processes of this machine make some of these, too.
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range append(cgroups(t), strings.Split(string(mounts), "\n")...) {
		for _, word := range strings.FieldsFunc(source, func(r rune) bool { return strings.ContainsRune("/ -,=:", r) }) {
			if _, ours := made.Load(word); ours {
				t.Errorf("remaining: %s", source)
			}
		}
	}
}

// countLeakable counts what a driver could leak.
func countLeakable(t *testing.T) map[string]int {
	t.Helper()
	all, err := live.Processes()
	if err != nil {
		t.Fatal(err)
	}
	own := len(live.Descendants(all, os.Getpid()))
	return map[string]int{"descriptors": descriptors(t), "processes": own}
}

// checkNoLeaks fails unless the host eventually has no more than before: the end of a killed
// process is noticed a moment later.
func checkNoLeaks(t *testing.T, before map[string]int) {
	t.Helper()
	var now map[string]int
	if !eventually(func() bool {
		now = countLeakable(t)
		return now["descriptors"] <= before["descriptors"] && now["processes"] <= before["processes"]
	}) {
		t.Errorf("on the host: %v, %v before", now, before)
	}
}
