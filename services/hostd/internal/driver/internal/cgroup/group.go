package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// Limits limit a group as a whole; zero means no limit.
type Limits struct {
	MemoryMiB uint32
	CPUMilli  uint32
	Pids      uint32
	Apart     bool // Pids limits only processes forked in the group of driver.ForksFd
}

// Group is a sandbox's cgroups.
type Group struct {
	v2 string   // empty: none
	v1 []string // directories
}

// Paths returns the directories that a group of this name would have, to be recorded
// before Make. A v2 group is made also where it limits nothing: it freezes,
// kills and measures.
func (t *Tree) Paths(name string, l Limits) []string {
	var paths []string
	if t.v2 != "" {
		paths = append(paths, filepath.Join(t.v2, name))
	}
	for c, base := range t.v1 {
		if c == freezerController || c == hugePages || len(settings(c, l, true)) > 0 {
			paths = append(paths, filepath.Join(base, name))
		}
	}
	slices.Sort(paths)
	return paths
}

// Make makes the group of these Paths and sets its limits as far as the host
// has the controllers. On error nothing is left.
func (t *Tree) Make(paths []string, l Limits) (*Group, error) {
	g := Reopen(paths)
	if err := t.make(g, l); err != nil {
		for _, p := range paths {
			remove(p) //nolint:errcheck // it is empty, or was never made
		}
		return nil, err
	}
	return g, nil
}

func (t *Tree) make(g *Group, l Limits) error {
	for _, p := range g.paths() {
		if err := os.Mkdir(p, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		for _, c := range wanted {
			v1 := p != g.v2
			if v1 && t.v1[c] != filepath.Dir(p) || !v1 && !slices.Contains(t.controllers, c) {
				continue
			}
			for _, s := range settings(c, l, v1) {
				err := os.WriteFile(filepath.Join(p, s.file), []byte(s.value), 0o600)
				if err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
					return err
				}
			}
			if c == hugePages {
				if err := noHugePages(p, v1); err != nil {
					return err
				}
			}
			if c == "pids" && l.Pids > 0 && l.Apart {
				if err := makeForks(p, l.Pids, v1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// noHugePages forbids a group huge pages of any size, reserved or used.
func noHugePages(dir string, v1 bool) error {
	files := "hugetlb.*.max"
	if v1 {
		files = "hugetlb.*.limit_in_bytes"
	}
	all, err := filepath.Glob(filepath.Join(dir, files))
	for _, path := range all {
		err = errors.Join(err, os.WriteFile(path, []byte("0"), 0o600))
	}
	return err
}

type setting struct {
	file, value string
	optional    bool // the file exists only in some kernels
}

// settings returns the files and values that limit one controller.
func settings(controller string, l Limits, v1 bool) []setting {
	bytes := strconv.FormatUint(uint64(l.MemoryMiB)<<20, 10)
	switch {
	case controller == "memory" && l.MemoryMiB > 0 && v1:
		// TCP's buffers are counted separately in v1, and not limited otherwise.
		return []setting{{"memory.limit_in_bytes", bytes, false}, {"memory.memsw.limit_in_bytes", bytes, true},
			{"memory.kmem.tcp.limit_in_bytes", bytes, true}}
	case controller == "memory" && l.MemoryMiB > 0:
		return []setting{{"memory.max", bytes, false}, {"memory.swap.max", "0", true}}
	case controller == "pids" && l.Pids > 0:
		most := uint64(l.Pids)
		if l.Apart {
			most += driver.ShimThreads
		}
		return []setting{{"pids.max", strconv.FormatUint(most, 10), false}}
	case controller == "cpu":
		return cpuSettings(l, v1)
	}
	return nil
}

const (
	cpuPeriod  = 100_000 // us
	cpuDefault = 2000    // the weight of a sandbox without a limit, in thousandths of a CPU
)

// cpuSettings gives every sandbox a weight, also without a limit: it then has one share
// like any other, however many sessions its processes make. Otherwise the kernel would
// give each session as much as the host's own daemons get.
func cpuSettings(l Limits, v1 bool) []setting {
	all := []setting{weight(l.CPUMilli, v1)}
	quota := strconv.FormatUint(max(uint64(l.CPUMilli)*cpuPeriod/1000, 1000), 10)
	switch {
	case l.CPUMilli == 0:
		return all
	case v1:
		return append(all, setting{"cpu.cfs_period_us", strconv.Itoa(cpuPeriod), false}, setting{"cpu.cfs_quota_us", quota, false})
	}
	return append(all, setting{"cpu.max", fmt.Sprintf("%s %d", quota, cpuPeriod), false})
}

// weight is that of a sandbox with a limit in thousandths of a CPU; 0: no limit.
func weight(milli uint32, v1 bool) setting {
	w := uint64(milli)
	if w == 0 {
		w = cpuDefault
	}
	if v1 {
		return setting{"cpu.shares", strconv.FormatUint(max(w*1024/1000, 2), 10), false}
	}
	return setting{"cpu.weight", strconv.FormatUint(min(max(w/10, 1), 10_000), 10), false}
}

// Reopen returns the group of these directories, which need not exist any more.
func Reopen(paths []string) *Group {
	g := &Group{}
	for _, p := range paths {
		if isV2(filepath.Dir(p)) {
			g.v2 = p
		} else {
			g.v1 = append(g.v1, p)
		}
	}
	return g
}

// isV2 distinguishes a unified hierarchy from a v1 one: only there each group has this file.
func isV2(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.controllers"))
	return err == nil
}

func (g *Group) paths() []string {
	switch {
	case g == nil:
		return nil
	case g.v2 == "":
		return g.v1
	}
	return append([]string{g.v2}, g.v1...)
}

// Start calls start, which starts a child with attr, so that the child starts
// in the group. It must be called on a thread that ends afterwards, since that
// thread may enter the group too: with v1 a child starts where its parent is,
// and a thread that moves itself does not stall the whole machine's forks for
// milliseconds, as moving another process does.
func (g *Group) Start(attr *syscall.SysProcAttr, start func() error) error {
	defer g.leave() // otherwise Kill finds this process in the group as long as the thread runs
	for _, p := range g.v1 {
		if err := os.WriteFile(filepath.Join(p, "tasks"), []byte("0"), 0); err != nil {
			return err
		}
	}
	if g.v2 != "" {
		done, err := spawnIn(attr, g.v2)
		if err != nil {
			return err
		}
		defer done()
	}
	return start()
}

// leave moves this thread out of the group, to the group's parent.
func (g *Group) leave() {
	for _, p := range g.v1 {
		os.WriteFile(filepath.Join(filepath.Dir(p), "tasks"), []byte("0"), 0) //nolint:errcheck // the thread ends soon
	}
}

// oomFiles count, where they exist, processes killed for lack of memory.
var oomFiles = [...]string{"memory.events", "memory.oom_control"}

// ForShim opens the files for driver.OOMFd and driver.ForksFd, in that order.
func (g *Group) ForShim() ([]*os.File, error) {
	oom, err := fileOrEmpty(g.oom())
	if err != nil {
		return nil, err
	}
	forks, err := fileOrEmpty(g.forks())
	if err != nil {
		oom.Close()
		return nil, err
	}
	return []*os.File{oom, forks}, nil
}

func fileOrEmpty(f *os.File) (*os.File, error) {
	if f != nil {
		return f, nil
	}
	return os.Open(os.DevNull)
}

// oom opens the file that counts processes killed for lack of memory, for both versions
// in a line "oom_kill N"; nil if they are not counted.
func (g *Group) oom() *os.File {
	for _, p := range g.paths() {
		for _, n := range oomFiles {
			if f, err := os.Open(filepath.Join(p, n)); err == nil {
				return f
			}
		}
	}
	return nil
}

// Holds reports whether Kill reaches all descendants of the child: whether there
// is any group at all.
func (g *Group) Holds() bool { return len(g.paths()) > 0 }

// Kill kills every process in the group and returns when none is left.
func (g *Group) Kill(ctx context.Context) error {
	for _, p := range g.paths() {
		err := poll(ctx, func() (bool, error) { return killAll(p) })
		if err != nil {
			return fmt.Errorf("kill cgroup %s: %w", p, err)
		}
	}
	return nil
}

// killAll kills the processes in the group dir and reports whether it was empty.
func killAll(dir string) (bool, error) {
	pids, err := procs(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return true, nil
	}
	if err != nil || len(pids) == 0 {
		return err == nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0); err == nil {
		return false, nil
	}
	for _, pid := range pids {
		// This process itself is in the group as long as the thread that called Start is
		// about to end.
		if pid > 0 && pid != os.Getpid() {
			unix.Kill(pid, unix.SIGKILL)
		}
	}
	return false, nil
}

// Remove removes the group's directories. The kernel refuses for a moment after
// the last process has ended.
func (g *Group) Remove(ctx context.Context) error {
	for _, p := range g.paths() {
		err := poll(ctx, func() (bool, error) {
			err := remove(p)
			if errors.Is(err, unix.EBUSY) {
				return false, nil
			}
			return err == nil || errors.Is(err, fs.ErrNotExist), err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove cgroup %s: %w", p, err)
		}
	}
	return nil
}

// poll calls done until it returns true, with pauses of 0.2 to 20 ms.
func poll(ctx context.Context, done func() (bool, error)) error {
	pause := 200 * time.Microsecond
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if !waiting.Sleep(ctx, pause) {
			return ctx.Err()
		}
		pause = min(2*pause, 20*time.Millisecond)
	}
}
