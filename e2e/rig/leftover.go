package rig

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// leftover is a process, a mount or a cgroup that remains after its nest.
type leftover struct {
	pid    int
	what   string
	mount  string
	cgroup string
}

// String describes the leftover in test failures.
func (l leftover) String() string {
	if l.pid > 0 {
		return fmt.Sprintf("process %d (%s)", l.pid, l.what)
	}
	if l.cgroup != "" {
		return "cgroup " + l.cgroup
	}
	return "mount " + l.mount
}

// cgroups returns the cgroups of sandboxes.
func cgroups(ids []string) []leftover {
	var out []leftover
	filepath.WalkDir(
		"/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return nil //nolint:nilerr // it was removed meanwhile
			}
			if id, ok := strings.CutPrefix(d.Name(), "millrace-"); ok && slices.Contains(ids, id) {
				out = append(out, leftover{cgroup: path})
			}
			return nil
		})
	return out
}

// leftovers returns the processes that work in a directory, have a file of it open or have
// it mounted, and the mounts below it.
func leftovers(dir string) []leftover {
	var out []leftover
	for _, m := range mounts("/proc/self/mountinfo") {
		if within(dir, m) {
			out = append(out, leftover{mount: m})
		}
	}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return append(out, leftover{what: err.Error()})
	}
	for _, e := range procs {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		p := filepath.Join("/proc", e.Name())
		if touches(p, dir) {
			what, _ := os.ReadFile(filepath.Join(p, "cmdline"))
			out = append(out, leftover{pid: pid, what: strings.TrimSpace(string(bytes.ReplaceAll(what, []byte{0}, []byte{' '})))})
		}
	}
	return out
}

// KillAll kills every process that uses a directory, such as those of sandboxes whose host
// has its data there, and returns their number.
func KillAll(dir string) (n int) {
	for _, l := range leftovers(dir) {
		if l.pid > 0 {
			n++
			syscall.Kill(l.pid, syscall.SIGKILL)
		}
	}
	return n
}

// touches reports whether a process uses a directory; false if it ends meanwhile.
func touches(proc, dir string) bool {
	if cwd, err := os.Readlink(filepath.Join(proc, "cwd")); err == nil && within(dir, cwd) {
		return true
	}
	fds, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err == nil {
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join(proc, "fd", fd.Name())); err == nil && within(dir, to) {
				return true
			}
		}
	}
	// A sandbox has a mount namespace of its own, with sources in the directory.
	raw, err := os.ReadFile(filepath.Join(proc, "mountinfo"))
	return err == nil && bytes.Contains(raw, []byte(dir+"/"))
}

func within(dir, path string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// mounts returns the mount points.
func mounts(mountinfo string) []string {
	raw, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil
	}
	var out []string
	for l := range strings.Lines(string(raw)) {
		if f := strings.Fields(l); len(f) > 4 {
			out = append(out, f[4])
		}
	}
	return out
}
