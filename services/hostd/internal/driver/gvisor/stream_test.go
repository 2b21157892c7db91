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

// answerShell makes the shell of shellIn continue; replied reports whether it has written something.
func answerShell(t *testing.T, s driver.Spec) (replied func() bool) {
	t.Helper()
	r := &runsc{dir: filepath.Join(s.Dir, workDir)}
	if err := os.WriteFile(r.in(toShim), []byte("line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pair, err := r.pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pair.Close() })
	poll := []unix.PollFd{{Fd: int32(pair.In.Fd()), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, int(time.Minute.Milliseconds())); n != 1 {
		t.Fatalf("no output: %v", err)
	}
	return func() bool {
		n, err := unix.Poll(poll, 0)
		return n == 1 && err == nil
	}
}

// Output that a sandbox wrote before a connection existed survives snapshots with memory,
// although gVisor reads its pipes empty.
func TestSnapshotsKeepUnreadOutput(t *testing.T) {
	_, s, in := shellIn(t, "read line; echo said; sleep 1000")
	defer in.Destroy(t.Context())
	replied := answerShell(t, s)
	for range 2 {
		if err := in.Snapshot(t.Context(), t.TempDir(), true); err != nil {
			t.Fatal(err)
		}
	}
	if !replied() {
		t.Error("the output is lost")
	}
}

// A snapshot that does not fit on the disk fails with the cause, and the sandbox continues.
func TestSnapshotOnAFullDisk(t *testing.T) {
	_, s, in := shellIn(t, "read line; echo said; sleep 1000")
	defer in.Destroy(t.Context())
	small := t.TempDir()
	if err := unix.Mount("none", small, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("mount: %v", err)
	}
	defer unix.Unmount(small, unix.MNT_DETACH)
	dir := filepath.Join(small, "snapshot")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := in.Snapshot(t.Context(), dir, true); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("left over: %v, %v", left, err)
	}
	answerShell(t, s)
}

// While its memory is being saved a sandbox does not respond. Checkpointing reports that, also to
// a process that did not request it.
func TestCheckpointingIsReported(t *testing.T) {
	d, s, in := shellIn(t, "for i in $(seq 100); do sleep 1000 & done; read end")
	defer in.Destroy(t.Context())
	other, err := d.Attach(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	k, ok := other.(driver.Checkpointer)
	if !ok || k.Checkpointing(t.Context()) {
		t.Fatal("Checkpointing before the snapshot")
	}
	done := make(chan error, 1)
	go func() { done <- in.Snapshot(t.Context(), t.TempDir(), true) }()
	reported := false
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			if !reported || k.Checkpointing(t.Context()) {
				t.Errorf("Checkpointing: %v during the snapshot, want true; or true after it", reported)
			}
			return
		default:
			reported = k.Checkpointing(t.Context()) || reported
		}
	}
}
