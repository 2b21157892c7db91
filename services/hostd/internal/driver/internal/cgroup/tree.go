// Package cgroup limits and kills the processes of a sandbox where the host
// allows it: by cgroups v2, by v1, or not at all. Nothing here is needed for a
// sandbox to work.
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
// may be used by many at the same time.
type Tree struct {
	v2          string            // directory to make groups in; empty: none
	controllers []string          // what v2 limits there
	v1          map[string]string // controller -> directory to make groups in
	notes       []string
}

var wanted = [...]string{"memory", "pids", "cpu", hugePages}

// hugePages is the controller of pools of huge pages that a host may keep, which nobody
// counts as memory: a sandbox gets none.
const hugePages = "hugetlb"

// freezer is the v1 controller for what every group of v2 can do.
const freezer = "freezer"

// Caps says what the groups of a Tree can do.
type Caps struct {
	Memory, Pids, CPU bool
	Freeze            bool     // Group.Freeze works
	Kill              bool     // Group.Kill reaches every process, also one that hides
	Notes             []string // why something is missing
}

// Open finds out what this process may do. It never fails: what is missing is in
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
// whose directory somebody removed, so that nobody will ask for them. The kernel
// refuses where there is a process, and a younger one may be about to get its
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
				remove(dir) //nolint:errcheck // somebody lives there, or it is not ours
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
			t.notes = append(t.notes, fmt.Sprintf("no %s limit: no cgroup controller to be had", c))
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

// openFreezer looks for what stops processes where there is no v2 that would.
func (t *Tree) openFreezer(mounts map[string]mount, own map[string]string) {
	m, ok := mounts[freezer]
	if !ok {
		t.notes = append(t.notes, "no cgroup stops a sandbox: neither version 2 nor a freezer to be had")
		return
	}
	base := m.dir(own[freezer])
	if err := try(base); err != nil {
		t.notes = append(t.notes, fmt.Sprintf("no cgroup stops a sandbox: %v", err))
		return
	}
	t.v1[freezer] = base
}

// openV2 looks for a place in the unified tree. In order: the root, which only
// root of the whole machine may use and which no limit of our own service then
// binds; our own group's parent, where a delegation begins; our own group,
// whose controllers cannot be shared out while we are in it.
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
		if whole(got) {
			return
		}
	}
	if t.v2 == "" && last != nil {
		t.notes = append(t.notes, "no cgroup v2: "+last.Error())
	}
}

// whole reports whether these controllers are all that is needed. To look on for that of huge
// pages, which not every kernel has, would change groups of others.
func whole(controllers []string) bool {
	for _, c := range wanted {
		if c != hugePages && !slices.Contains(controllers, c) {
			return false
		}
	}
	return true
}

// enable hands the wanted controllers down to the children of dir and returns
// those that they get.
func enable(dir string) []string {
	for _, c := range wanted {
		os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0) //nolint:errcheck // read back below
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
// user: one who is cut off here leaves no more than one, and a group that is
// there already was made by somebody with the same rights.
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

// Caps says what the groups of t can do.
func (t *Tree) Caps() Caps {
	has := func(c string) bool { return slices.Contains(t.controllers, c) || t.v1[c] != "" }
	return Caps{
		Memory: has("memory"), Pids: has("pids"), CPU: has("cpu"),
		Freeze: t.v2 != "" || t.v1[freezer] != "",
		Kill:   t.v2 != "" || t.v1["pids"] != "" || t.v1[freezer] != "",
		Notes:  slices.Clone(t.notes),
	}
}
