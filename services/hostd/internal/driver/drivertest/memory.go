//go:build linux

package drivertest

import (
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// snapshotMemory takes a snapshot with the memory.
func (b *instance) snapshotMemory(t *testing.T) string {
	t.Helper()
	dir := snapshotDir(t)
	if err := b.Snapshot(t.Context(), dir, true); err != nil {
		t.Fatalf("snapshot with memory: %v", err)
	}
	return dir
}

// counterScript starts a process that counts in memory, and responds on a FIFO.
const counterScript = `cd $HOME && mkfifo question && echo kept > file &&
	setsid sh -c 'n=100; while read x < question; do n=$((n+1)); echo $n > answer.new; mv answer.new answer; done' >/dev/null 2>&1 &
	until [ -p $HOME/question ]; do :; done`

// nextScript requests the next number of that process.
const nextScript = `cd $HOME && rm -f answer && echo > question && until [ -e answer ]; do :; done; cat answer file`

func (s *suite) testMemorySnapshot(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		b := s.create(t, nil)
		if !caps.Memory {
			if err := b.Snapshot(t.Context(), t.TempDir(), true); !kind.Is(err, kind.Unimplemented) {
				t.Errorf("without Caps.Memory: %v, want Unimplemented", err)
			}
			return
		}
		b.sh(t, counterScript)
		if got := b.sh(t, nextScript); got != "101\nkept" {
			t.Fatalf("before: %q", got)
		}
		dir := b.snapshotMemory(t)
		if got := b.sh(t, nextScript); got != "102\nkept" {
			t.Errorf("after it, the instance itself: %q", got)
		}
		first, second := s.fork(t, dir), s.fork(t, dir)
		for i, want := range []string{"102\nkept", "103\nkept"} {
			if got := first.sh(t, nextScript); got != want {
				t.Errorf("the first, question %d: %q, want %q", i, got, want)
			}
		}
		if got := second.sh(t, nextScript); got != "102\nkept" {
			t.Errorf("the second: %q", got)
		}
		third := s.fork(t, first.snapshotMemory(t))
		if err := first.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := third.sh(t, nextScript); got != "104\nkept" {
			t.Errorf("the second generation: %q", got)
		}
		attached := third.attach(t, s.newDriver(t))
		if r := send(t, attached, request{Args: []string{"sh", "-c", nextScript}, UID: -1}); r.Out != "105\nkept\n" {
			t.Errorf("in another run of hostd: %q", r.Out)
		}
	}
}

func (s *suite) testMemorySnapshotPaused(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		if !caps.Memory || !caps.Pause {
			t.Skip("the driver cannot do both")
		}
		b := s.create(t, nil)
		b.sh(t, counterScript)
		if err := b.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		dir := b.snapshotMemory(t)
		checkPaused(t, b.Instance)
		if got := s.fork(t, dir).sh(t, nextScript); got != "101\nkept" {
			t.Errorf("a fork of it: %q", got)
		}
		if err := b.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := b.sh(t, nextScript); got != "101\nkept" {
			t.Errorf("after it: %q", got)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "new*")); err != nil || len(left) > 0 {
			t.Errorf("remaining in the snapshot: %v, %v", left, err)
		}
	}
}
