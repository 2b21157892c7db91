//go:build linux

package gvisor

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// What a sandbox has said while nobody listened is there after snapshots with the memory:
// gVisor takes what it can read of its pipes.
func TestSnapshotsLeaveWhatWasSaid(t *testing.T) {
	_, s, in := shellIn(t, "read line; echo said; sleep 1000")
	defer in.Destroy(t.Context()) //nolint:errcheck // the last look says more
	if err := os.WriteFile(filepath.Join(s.Dir, workDir, toShim), []byte("say\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pair, err := (&runsc{dir: filepath.Join(s.Dir, workDir)}).pair()
	if err != nil {
		t.Fatal(err)
	}
	defer pair.Close() //nolint:errcheck // it was only read from
	poll := []unix.PollFd{{Fd: int32(pair.In.Fd()), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, int(time.Minute.Milliseconds())); n != 1 {
		t.Fatalf("it says nothing: %v", err)
	}
	for range 2 {
		dir := filepath.Join(t.TempDir(), "snapshot")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := in.Snapshot(t.Context(), dir, true); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := unix.Poll(poll, 0); n != 1 {
		t.Errorf("nothing is there any more: %v", err)
	}
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
