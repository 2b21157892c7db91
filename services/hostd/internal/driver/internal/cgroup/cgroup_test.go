//go:build linux

package cgroup

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseMounts(t *testing.T) {
	const info = `24 1 0:22 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
25 1 0:23 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
26 1 0:24 / /sys/fs/cgroup/uni\040fied rw - cgroup2 cgroup2 rw,nsdelegate
27 1 0:25 / /proc rw - proc proc rw
broken line
`
	want := map[string]mount{
		"cpu":    {"/sys/fs/cgroup/cpu,cpuacct", "/"},
		"memory": {"/sys/fs/cgroup/memory", "/docker/x"},
		"":       {"/sys/fs/cgroup/uni fied", "/"},
	}
	if got := parseMounts(info); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMountFindsOwnGroup(t *testing.T) {
	for _, tt := range []struct {
		name string
		m    mount
		own  string
		want string
	}{
		{"whole hierarchy", mount{"/cg", "/"}, "/a/b", "/cg/a/b"},
		{"the hierarchy's root", mount{"/cg", "/"}, "/", "/cg"},
		{"a container's part", mount{"/cg", "/docker/x"}, "/docker/x/y", "/cg/y"},
		{"a container's own root", mount{"/cg", "/docker/x"}, "/docker/x", "/cg"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.m.dir(tt.own); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestParseOwn(t *testing.T) {
	got := parseOwn("4:cpu,cpuacct:/a\n3:memory:/b:c\n0::/user.slice\n")
	want := map[string]string{"cpu": "/a", "cpuacct": "/a", "memory": "/b:c", "": "/user.slice"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// unified makes a directory that looks like a v2 hierarchy that delegates these
// controllers.
func unified(t *testing.T, controllers string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": controllers} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Writes must not change it: a real one is not a plain file.
	if err := os.Chmod(filepath.Join(dir, "cgroup.subtree_control"), 0o400); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestMakeInV2(t *testing.T) {
	base := unified(t, "")
	tree := &Tree{v2: base, controllers: []string{"memory", "pids", "cpu"}}
	l := Limits{MemoryMiB: 64, CPUMilli: 1500, Pids: 9}
	g, err := tree.Make(tree.Paths("sandbox", l), l)
	if err != nil {
		t.Fatal(err)
	}
	if !g.Holds() || g.v2 != filepath.Join(base, "sandbox") || len(g.v1) > 0 {
		t.Errorf("got %+v", g)
	}
	for file, want := range map[string]string{
		"memory.max": "67108864", "memory.swap.max": "0", "pids.max": "9", "cpu.max": "150000 100000", "cpu.weight": "150",
	} {
		if got, err := os.ReadFile(filepath.Join(base, "sandbox", file)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", file, got, err, want)
		}
	}
}

func TestMakeInV1(t *testing.T) {
	memory, cpu := t.TempDir(), t.TempDir()
	tree := &Tree{v1: map[string]string{"memory": memory, "cpu": cpu}}
	l := Limits{MemoryMiB: 64, CPUMilli: 5}
	g, err := tree.Make(tree.Paths("sandbox", l), l)
	if err != nil {
		t.Fatal(err)
	}
	if g.v2 != "" || len(g.v1) != 2 {
		t.Errorf("got %+v", g)
	}
	for path, want := range map[string]string{
		memory + "/sandbox/memory.limit_in_bytes": "67108864",
		cpu + "/sandbox/cpu.cfs_quota_us":         "1000", // the kernel's minimum
		cpu + "/sandbox/cpu.cfs_period_us":        "100000",
		cpu + "/sandbox/cpu.shares":               "5",
	} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
}

// Huge pages of a host's pool are not counted as memory, so a sandbox gets none.
func TestMakeForbidsHugePages(t *testing.T) {
	v1, v2 := t.TempDir(), unified(t, "")
	for name, tt := range map[string]struct {
		tree  *Tree
		files []string
	}{
		"v1": {&Tree{v1: map[string]string{hugePages: v1}}, []string{v1 + "/sandbox/hugetlb.2MB.limit_in_bytes", v1 + "/sandbox/hugetlb.1GB.rsvd.limit_in_bytes"}},
		"v2": {&Tree{v2: v2, controllers: []string{hugePages}}, []string{v2 + "/sandbox/hugetlb.2MB.max", v2 + "/sandbox/hugetlb.2MB.rsvd.max"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range tt.files { // as the kernel does
				if err := errors.Join(os.MkdirAll(filepath.Dir(f), 0o700), os.WriteFile(f, []byte("max"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := tt.tree.Make(tt.tree.Paths("sandbox", Limits{}), Limits{}); err != nil {
				t.Fatal(err)
			}
			for _, f := range tt.files {
				if got, err := os.ReadFile(f); err != nil || string(got) != "0" {
					t.Errorf("%s: %q, %v", f, got, err)
				}
			}
		})
	}
}

// The kernel resets a group's weight while the group is deprioritized.
func TestDeprioritizeKeepsTheWeight(t *testing.T) {
	for name, tt := range map[string]struct {
		v2     bool
		l      Limits
		weight string // file and value
	}{
		"v1":                  {false, Limits{CPUMilli: 500}, "cpu.shares 512"},
		"v1, without a limit": {false, Limits{}, "cpu.shares 2048"},
		"v2":                  {true, Limits{CPUMilli: 1500}, "cpu.weight 150"},
		"v2, without a limit": {true, Limits{}, "cpu.weight 200"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := &Tree{v1: map[string]string{"cpu": t.TempDir()}}
			if tt.v2 {
				tree = &Tree{v2: unified(t, ""), controllers: []string{"cpu"}}
			}
			g, err := tree.Make(tree.Paths("sandbox", tt.l), tt.l)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.SetDeprioritized(true); !errors.Is(err, ErrNotSupported) {
				t.Errorf("without cpu.idle: %v", err)
			}
			path := func(name string) string { return filepath.Join(g.paths()[0], name) }
			file, want, _ := strings.Cut(tt.weight, " ")
			write := func(name, text string) {
				t.Helper()
				if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			read := func(name string) string {
				t.Helper()
				b, err := os.ReadFile(path(name))
				if err != nil {
					t.Fatal(err)
				}
				return string(b)
			}
			write(idle, "0")
			if err := g.SetDeprioritized(true); err != nil || read(idle) != "1" {
				t.Errorf("%v, %s", err, read(idle))
			}
			write(file, "forgotten")
			if err := g.SetDeprioritized(false); err != nil || read(idle) != "0" || read(file) != want {
				t.Errorf("%v, %s, %s %s, want %s", err, read(idle), file, read(file), want)
			}
		})
	}
}

// A sandbox without a limit of its own still has a weight like any other.
func TestPathsWithoutLimitsHaveTheCPUGroup(t *testing.T) {
	tree := &Tree{v1: map[string]string{"memory": "/m", "cpu": "/c", "pids": "/p"}}
	if got := tree.Paths("sandbox", Limits{Pids: 5}); !slices.Equal(got, []string{"/c/sandbox", "/p/sandbox"}) {
		t.Errorf("got %v", got)
	}
}

func TestFailedMakeLeavesNothing(t *testing.T) {
	good := t.TempDir()
	paths := []string{filepath.Join(good, "sandbox"), filepath.Join(good, "missing", "sandbox")}
	if _, err := (&Tree{v1: map[string]string{"pids": good}}).Make(paths, Limits{}); err == nil {
		t.Fatal("no error")
	}
	if left, err := os.ReadDir(good); err != nil || len(left) > 0 {
		t.Errorf("remaining: %v, %v", left, err)
	}
}

func TestOpenReportsWhatIsMissing(t *testing.T) {
	tree := open(map[string]mount{"memory": {filepath.Join(t.TempDir(), "missing"), "/"}}, nil)
	caps := tree.Caps()
	if want := (Caps{Notes: caps.Notes}); !reflect.DeepEqual(caps, want) {
		t.Errorf("got %+v", caps)
	}
	if all := strings.Join(caps.Notes, "\n"); strings.Count(all, "limit:") != 3 || !strings.Contains(all, "no cgroup freezer:") {
		t.Errorf("notes: %s", all)
	}
	if got := tree.Paths("sandbox", Limits{MemoryMiB: 1, Pids: 1, CPUMilli: 1}); len(got) > 0 {
		t.Errorf("paths %v", got)
	}
}

func TestReapRemovesOldEmptyGroups(t *testing.T) {
	v1, v2 := t.TempDir(), t.TempDir()
	for _, dir := range []string{v1 + "/millrace-old", v1 + "/millrace-full/x", v2 + "/millrace-old", v2 + "/other"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	tree := &Tree{v2: v2, v1: map[string]string{"pids": v1}}
	tree.reap(time.Hour)
	if _, err := os.Stat(v1 + "/millrace-old"); err != nil {
		t.Error("a recent group was removed")
	}
	tree.reap(-time.Hour)
	var left []string
	for _, base := range []string{v1, v2} {
		found, err := filepath.Glob(base + "/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			left = append(left, filepath.Base(f))
		}
	}
	if want := []string{"millrace-full", "other"}; !slices.Equal(left, want) {
		t.Errorf("remaining %v, want %v", left, want)
	}
}

// In a v1 hierarchy TCP's buffers have a limit of their own.
func TestTCPBuffersAreLimited(t *testing.T) {
	want := setting{"memory.kmem.tcp.limit_in_bytes", "1048576", true}
	if got := settings("memory", Limits{MemoryMiB: 1}, true); !slices.Contains(got, want) {
		t.Errorf("got %v, want %v among them", got, want)
	}
}

func TestMissingGroupIsNotAnError(t *testing.T) {
	g := Reopen([]string{filepath.Join(t.TempDir(), "gone")})
	if err := g.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}
