package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A shim that cannot create a thread dies, and with it every record of its sandbox. So it
// is not counted among the processes that a fork bomb uses up: those are in a group below
// the sandbox's own, which has only that limit. One thread of the shim is in it and
// forks. Version 2 permits threads of one process to be in different groups if the
// lower one is threaded.
const forksDir = "forks"

// makeForks makes the group below dir, for most processes and the thread that forks.
func makeForks(dir string, most uint32, v1 bool) error {
	forks := filepath.Join(dir, forksDir)
	if err := os.Mkdir(forks, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	files := []setting{{file: filepath.Join(forks, "pids.max"), value: strconv.FormatUint(uint64(most)+1, 10)}}
	if !v1 {
		files = append([]setting{
			{file: filepath.Join(forks, "cgroup.type"), value: "threaded"},
			{file: filepath.Join(dir, "cgroup.subtree_control"), value: "+pids"},
		}, files...)
	}
	for _, f := range files {
		if err := os.WriteFile(f.file, []byte(f.value), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// forks opens the file to which a thread writes "0" to join the group of Limits.Apart;
// nil if it does not exist.
func (g *Group) forks() *os.File {
	for _, p := range g.paths() {
		name := "tasks"
		if p == g.v2 {
			name = "cgroup.threads"
		}
		if f, err := os.OpenFile(filepath.Join(p, forksDir, name), os.O_WRONLY, 0); err == nil {
			return f
		}
	}
	return nil
}

// procs returns the pids in the group dir and below it: 0 for each process that this pid
// namespace does not show.
func procs(dir string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	forks, err := os.ReadFile(filepath.Join(dir, forksDir, "cgroup.procs"))
	// A threaded group does not list them, but its parent lists all.
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, err
	}
	var all []int
	for _, f := range strings.Fields(string(b) + "\n" + string(forks)) {
		if pid, err := strconv.Atoi(f); err == nil {
			all = append(all, pid)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// remove removes a group without processes.
func remove(dir string) error {
	if err := unix.Rmdir(filepath.Join(dir, forksDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return unix.Rmdir(dir)
}
