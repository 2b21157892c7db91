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

// leaks makes and destroys creates places, five at a time, and compares what
// there is on the host.
func (s *suite) leaks(t *testing.T) {
	d := s.newDriver(t)
	once := func() {
		sp, root := spec(t)
		in, err := d.Create(t.Context(), sp)
		if err != nil {
			t.Errorf("create: %v", err)
			return
		}
		if err := in.Destroy(context.Background()); err != nil {
			t.Errorf("destroy: %v", err)
		}
		if left, err := os.ReadDir(sp.Dir); err != nil || len(left) > 0 {
			t.Errorf("left in the directory: %v, %v", left, err)
		}
		os.RemoveAll(root)
	}
	once() // prepares what is kept for good
	before := onHost(t)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			for range creates / 5 {
				if once(); t.Failed() {
					return
				}
			}
		})
	}
	wg.Wait()
	for what, n := range onHost(t) {
		if n > before[what] {
			t.Errorf("%s: %d, %d before", what, n, before[what])
		}
	}
}

// onHost counts what a driver could leave.
func onHost(t *testing.T) map[string]int {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	own := 0 // other tests of this machine start processes, too
	all, err := live.Processes()
	if err != nil {
		t.Fatal(err)
	}
	own = len(live.Descendants(all, os.Getpid()))
	return map[string]int{"descriptors": descriptors(t), "mounts": strings.Count(string(mounts), "\n"), "processes": own, "cgroups": ownGroups(t)}
}

// ownGroups counts the cgroups of places that no other hostd on this machine has:
// those that have no process.
func ownGroups(t *testing.T) int {
	t.Helper()
	n := 0
	for _, g := range cgroups(t) {
		if procs, err := os.ReadFile(filepath.Join(g, "cgroup.procs")); err == nil && len(procs) == 0 {
			n++
		}
	}
	return n
}
