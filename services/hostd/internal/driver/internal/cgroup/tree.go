// Package cgroup limits and kills the processes of a sandbox where the host
// permits it: by cgroups v2, by v1, or not at all. Sandboxes work without
// it.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Tree is where this process may make cgroups. It does not change after Open and
// is safe for concurrent use.
type Tree struct {
	v2          string            // parent directory of groups; empty: none
	controllers []string          // controllers of v2 there
	v1          map[string]string // controller -> parent directory of groups
	notes       []string
}

var wanted = [...]string{"memory", "pids", "cpu", hugePages}

// hugePages is the controller of a host's pools of huge pages, which are not counted
// as memory: a sandbox gets none.
const hugePages = "hugetlb"

// freezerController is the v1 controller for what every v2 group can do.
const freezerController = "freezer"

// Caps describes what the groups of a Tree can do.
type Caps struct {
	Memory, Pids, CPU bool
	Freeze            bool     // Group.Freeze works
	Kill              bool     // Group.Kill reaches every process, also one that hides
	Notes             []string // reasons why something is missing
}

// Open determines the permissions of this process. It never fails: missing ones are in
// Caps.Notes.
func Open() *Tree {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return &Tree{notes: []string{"no cgroups: " + err.Error()}}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return &Tree{notes: []string{"no cgroups: " + err.Error()}}
	}
	t := open(parseMounts(string(mounts)), parseOwn(string(own)))
	t.reap(time.Minute)
	return t
}

// Prefix begins the name of every group that is made here.
const Prefix = "millrace-"

// reap removes the groups that are empty and older than age: those of sandboxes
// whose directory was removed, so that no driver will remove them. The kernel
// refuses where there is a process, and a younger group may be about to get its
// first.
func (t *Tree) reap(age time.Duration) {
	for _, base := range append(slices.Collect(maps.Values(t.v1)), t.v2) {
		if base == "" {
			continue
		}
		old, err := filepath.Glob(filepath.Join(base, Prefix+"*"))
		if err != nil {
			continue
		}
		for _, dir := range old {
			if st, err := os.Stat(dir); err == nil && time.Since(st.ModTime()) > age {
				remove(dir) //nolint:errcheck // it has processes or belongs to another user
			}
		}
	}
}

func open(mounts map[string]mount, own map[string]string) *Tree {
	t := &Tree{v1: map[string]string{}}
	if m, ok := mounts[""]; ok {
		t.openV2(m, own[""])
	}
	for _, c := range wanted {
		if slices.Contains(t.controllers, c) {
			continue
		}
		m, ok := mounts[c]
		if !ok && c == hugePages {
			continue // few hosts keep a pool
		}
		if !ok {
			t.notes = append(t.notes, fmt.Sprintf("no %s limit: no cgroup controller available", c))
			continue
		}
		base := m.dir(own[c])
		if err := try(base); err != nil {
			t.notes = append(t.notes, fmt.Sprintf("no %s limit: %v", c, err))
			continue
		}
		t.v1[c] = base
	}
	if t.v2 == "" {
		t.openFreezer(mounts, own)
	}
	return t
}

// openFreezer finds the v1 freezer where there is no v2 group that can freeze.
func (t *Tree) openFreezer(mounts map[string]mount, own map[string]string) {
	m, ok := mounts[freezerController]
	if !ok {
		t.notes = append(t.notes, "no cgroup freezer: neither version 2 nor the v1 controller is available")
		return
	}
	base := m.dir(own[freezerController])
	if err := try(base); err != nil {
		t.notes = append(t.notes, fmt.Sprintf("no cgroup freezer: %v", err))
		return
	}
	t.v1[freezerController] = base
}

// openV2 finds a parent directory in the unified tree. In order: the root, which only
// root of the whole machine may use and where no limit of hostd's own service
// applies; the parent of hostd's own group, where a delegation begins; its own group,
// whose controllers cannot be delegated while it contains hostd.
func (t *Tree) openV2(m mount, own string) {
	dir := m.dir(own)
	var last error
	for _, base := range []string{m.path, filepath.Dir(dir), dir} {
		if !strings.HasPrefix(base, m.path) {
			continue
		}
		if last = try(base); last != nil {
			continue
		}
		got := enable(base)
		if t.v2 == "" || len(got) > len(t.controllers) {
			t.v2, t.controllers = base, got
		}
		if sufficient(got) {
			return
		}
	}
	if t.v2 == "" && last != nil {
		t.notes = append(t.notes, "no cgroup v2: "+last.Error())
	}
}

// sufficient reports whether these controllers are sufficient. Looking further for huge pages,
// which not every kernel has, would change groups of others.
func sufficient(controllers []string) bool {
	for _, c := range wanted {
		if c != hugePages && !slices.Contains(controllers, c) {
			return false
		}
	}
	return true
}

// enable delegates the wanted controllers to the children of dir and returns
// those that they get.
func enable(dir string) []string {
	for _, c := range wanted {
		os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0) //nolint:errcheck // checked below
	}
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return nil
	}
	var got []string
	for _, c := range strings.Fields(string(b)) {
		if slices.Contains(wanted[:], c) {
			got = append(got, c)
		}
	}
	return got
}

// try makes a group in base and removes it. Its name is always the same for a
// user: an interrupted try leaves at most one, and an existing group was made by a
// process with the same permissions.
func try(base string) error {
	dir := filepath.Join(base, fmt.Sprintf(Prefix+"probe-%d", os.Geteuid()))
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Remove(dir); !errors.Is(err, fs.ErrNotExist) { // another hostd may be trying too
		return err
	}
	return nil
}

// Caps describes what the groups of t can do.
func (t *Tree) Caps() Caps {
	has := func(c string) bool { return slices.Contains(t.controllers, c) || t.v1[c] != "" }
	return Caps{
		Memory: has("memory"), Pids: has("pids"), CPU: has("cpu"),
		Freeze: t.v2 != "" || t.v1[freezerController] != "",
		Kill:   t.v2 != "" || t.v1["pids"] != "" || t.v1[freezerController] != "",
		Notes:  slices.Clone(t.notes),
	}
}
