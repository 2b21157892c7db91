package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inMounts makes this test a process with a mount namespace of its own.
const inMounts = "RUNSC_TEST_MOUNTS"

// ownMounts runs the test again in a process with a mount namespace of its own, in which it returns true.
func ownMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inMounts) != "" {
		if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inMounts+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return false
}

// tmpfs mounts a tmpfs on a directory, with a file for all and one for root.
func tmpfs(t *testing.T, dir string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(dir, 0o755), unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755")); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{"open": 0o644, "shut": 0o600} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
}

// Through a veil root can read only what all users may read, also in mounts.
func TestVeilLimitsRootToPublicFiles(t *testing.T) {
	if !ownMounts(t) {
		return
	}
	dir := t.TempDir()
	tmpfs(t, dir)
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) }) //nolint:errcheck // otherwise it cannot be removed
	if err := os.Chmod(dir, 0o700); err != nil {             // as where hostd keeps sandboxes
		t.Fatal(err)
	}
	host, to := filepath.Join(dir, "the host"), filepath.Join(dir, "to")
	tmpfs(t, host)
	tmpfs(t, filepath.Join(host, "a b"))
	tmpfs(t, filepath.Join(host, "a b", "deep"))
	private := filepath.Join(host, "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	tmpfs(t, filepath.Join(private, "in"))
	file, secret := filepath.Join(host, "file"), filepath.Join(host, "secret")
	system, hidden := filepath.Join(host, "proc"), filepath.Join(host, "hidden")
	tmpfs(t, filepath.Join(hidden, "below"))
	tmpfs(t, hidden) // over it
	if err := errors.Join(
		os.WriteFile(file, nil, 0o644), unix.Mount(filepath.Join(host, "open"), file, "", unix.MS_BIND, ""),
		os.WriteFile(secret, nil, 0o644), unix.Mount(filepath.Join(host, "shut"), secret, "", unix.MS_BIND, ""),
		os.Mkdir(system, 0o755), unix.Mount("proc", system, "proc", 0, ""),
		os.Mkdir(to, 0o755),
		veilAll(host, to, filepath.Join(dir, "scratch")),
	); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		"open": nil, "shut": unix.EACCES, "a b/open": nil, "a b/shut": unix.EACCES, "a b/deep/open": nil, "a b/deep/shut": unix.EACCES,
		"file": nil, "private/in/open": unix.EACCES, "hidden/open": nil, "hidden/shut": unix.EACCES,
		"proc/version": unix.ENOENT, // an overlay cannot show it; its parent is veiled nevertheless
	} {
		if got, err := os.ReadFile(filepath.Join(to, name)); !errors.Is(err, want) {
			t.Errorf("%s: %q, %v; want %v", name, got, err, want)
		}
	}
	if got, err := os.ReadFile(filepath.Join(to, "secret")); string(got) == "shut" {
		t.Errorf("a mounted file: %q, %v", got, err)
	}
	if got, err := os.ReadFile(filepath.Join(host, "shut")); string(got) != "shut" {
		t.Errorf("without a veil: %q, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(to, "new"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("writable: %v", err)
	}
}
