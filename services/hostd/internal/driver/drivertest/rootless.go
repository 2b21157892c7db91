//go:build linux

package drivertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// ordinary is the uid that the tests are run as once more.
const ordinary = 1000

// RunRootless runs the named tests of this binary again as an ordinary user, if
// this is root, with a cgroup of the user's own where there is version 2.
func RunRootless(t *testing.T, pattern string) { runRootless(t, pattern, delegate) }

// RunBare is RunRootless for a user without a cgroup.
func RunBare(t *testing.T, pattern string) {
	runRootless(t, pattern, func(*testing.T) *os.File { return nil })
}

func runRootless(t *testing.T, pattern string, delegate func(*testing.T) *os.File) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("already running as an ordinary user")
	}
	dir, err := os.MkdirTemp("", "millrace-rootless-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chown(dir, ordinary, ordinary); err != nil {
		t.Fatal(err)
	}
	// By a link of its own, because other users may not reach the path of a test binary.
	cmd := exec.Command(self, "-test.run="+pattern, "-test.v", "-test.timeout=8m")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir, "XDG_CACHE_HOME=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	if group := delegate(t); group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("as uid %d: %v\n%s", ordinary, err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "does not work here") || strings.HasPrefix(line, "    run.go") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// delegate gives an ordinary user a cgroup v2 in which it can create others, as
// systemd does for a user's services. It is removed after the test; nil where there
// is no v2.
func delegate(t *testing.T) *os.File {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
			continue
		}
		dir, err := os.MkdirTemp(root, "drivertest-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Errorf("the group of an ordinary user's hostd: %v", err)
			}
		})
		for _, name := range []string{"", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"} {
			if err := os.Chown(filepath.Join(dir, name), ordinary, ordinary); err != nil {
				t.Fatal(err)
			}
		}
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	return nil
}
