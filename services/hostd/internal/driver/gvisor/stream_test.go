//go:build linux

package gvisor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// say has the shell of shellIn go on, and says whether it has said something.
func say(t *testing.T, s driver.Spec) (said func() bool) {
	t.Helper()
	r := &runsc{dir: filepath.Join(s.Dir, workDir)}
	if err := os.WriteFile(r.in(toShim), []byte("say\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pair, err := r.pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pair.Close() }) //nolint:errcheck // it was only read from
	poll := []unix.PollFd{{Fd: int32(pair.In.Fd()), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, int(time.Minute.Milliseconds())); n != 1 {
		t.Fatalf("it says nothing: %v", err)
	}
	return func() bool {
		n, err := unix.Poll(poll, 0)
		return n == 1 && err == nil
	}
}

// What a sandbox has said while nobody listened is there after snapshots with the memory:
// gVisor takes what it can read of its pipes.
func TestSnapshotsLeaveWhatWasSaid(t *testing.T) {
	_, s, in := shellIn(t, "read line; echo said; sleep 1000")
	defer in.Destroy(t.Context()) //nolint:errcheck // the last look says more
	said := say(t, s)
	for range 2 {
		if err := in.Snapshot(t.Context(), t.TempDir(), true); err != nil {
			t.Fatal(err)
		}
	}
	if !said() {
		t.Error("nothing is there any more")
	}
}

// A snapshot for which there is no room says so, and the sandbox goes on.
func TestNoRoomForASnapshot(t *testing.T) {
	_, s, in := shellIn(t, "read line; echo said; sleep 1000")
	defer in.Destroy(t.Context()) //nolint:errcheck // the last look says more
	small := t.TempDir()
	if err := unix.Mount("none", small, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("mount: %v", err)
	}
	defer unix.Unmount(small, unix.MNT_DETACH) //nolint:errcheck // best effort
	dir := filepath.Join(small, "snapshot")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := in.Snapshot(t.Context(), dir, true); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("%v is left, %v", left, err)
	}
	say(t, s)
}

// While its memory is kept a sandbox does not answer, and that can be told, also by who did
// not ask for it.
func TestKeepingIsTold(t *testing.T) {
	d, s, in := shellIn(t, "for i in $(seq 100); do sleep 1000 & done; read end")
	defer in.Destroy(t.Context()) //nolint:errcheck // the last look says more
	other, err := d.Attach(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	k, ok := other.(driver.Keeping)
	if !ok || k.Keeping(t.Context()) {
		t.Fatal("it is said to be kept before that")
	}
	done := make(chan error, 1)
	go func() { done <- in.Snapshot(t.Context(), t.TempDir(), true) }()
	told := false
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			if !told || k.Keeping(t.Context()) {
				t.Errorf("told %v while it was kept", told)
			}
			return
		default:
			told = k.Keeping(t.Context()) || told
		}
	}
}
