//go:build linux

package cgroup

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// freezers returns groups of both kinds in the host's real hierarchies.
func freezers(t *testing.T) map[string]*Group {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*Group{}
	for controller, m := range parseMounts(string(mounts)) {
		if controller != "" && controller != freezerController {
			continue
		}
		dir, err := os.MkdirTemp(m.path, "cgroup-test-")
		if err != nil {
			t.Logf("no group in %s: %v", m.path, err)
			continue
		}
		t.Cleanup(func() { Reopen([]string{dir}).Remove(context.Background()) })
		all[filepath.Base(m.path)] = Reopen([]string{dir})
	}
	if len(all) == 0 {
		t.Skip("no freezer available")
	}
	return all
}

// A frozen process uses no time, in v2 and in v1.
func TestFreeze(t *testing.T) {
	for name, g := range freezers(t) {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "n")
			cmd := exec.Command("sh", "-c", "while :; do n=$((n+1)); echo $n > "+file+"; done")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { g.Thaw(t.Context()); cmd.Process.Kill(); cmd.Wait() }()
			for _, p := range g.paths() {
				if err := os.WriteFile(filepath.Join(p, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
					t.Fatal(err)
				}
			}
			if frozen, err := g.Frozen(); err != nil || frozen || !g.CanFreeze() {
				t.Errorf("before: frozen %v, %v", frozen, err)
			}
			for range 5 {
				awaitChange(t, file)
				if err := g.Freeze(t.Context()); err != nil {
					t.Fatal(err)
				}
				if frozen, err := g.Frozen(); err != nil || !frozen {
					t.Errorf("frozen %v, %v", frozen, err)
				}
				before := ticks(t, cmd.Process.Pid)
				spin(20 * time.Millisecond)
				if after := ticks(t, cmd.Process.Pid); after != before {
					t.Errorf("CPU time while frozen: %s, then %s", before, after)
				}
				if err := g.Thaw(t.Context()); err != nil {
					t.Fatal(err)
				}
				if frozen, err := g.Frozen(); err != nil || frozen {
					t.Errorf("thawed: frozen %v, %v", frozen, err)
				}
			}
			awaitChange(t, file)
		})
	}
}

// awaitChange waits until the file changes.
func awaitChange(t *testing.T, file string) {
	t.Helper()
	was, _ := os.ReadFile(file)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if is, err := os.ReadFile(file); err == nil && len(is) > 0 && string(is) != string(was) {
			return
		}
	}
	t.Fatal("the process does not run")
}

// spin spends time in which others could run.
func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		os.ReadFile("/proc/uptime")
	}
}

// ticks returns the process's CPU time, in nanoseconds.
func ticks(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/schedstat")
	if err != nil {
		t.Skip(err)
	}
	return strings.Fields(string(b))[0]
}
