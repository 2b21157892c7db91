//go:build linux

package drivertest

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// RunSlow is the part of Run for a driver whose places take seconds to make, and
// what it is to do with memory.
func RunSlow(t *testing.T, newDriver func(t *testing.T) driver.Driver) {
	s, caps := probed(t, newDriver)
	for _, tt := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"a command runs through the shim", s.runs},
		{"a connection may be dialed again", s.redials},
		{"the environment is the spec's and not the host's", s.environment},
		{"an unknown shim leaves nothing", s.badShim},
		{"a canceled create leaves nothing", s.canceled},
		{"destroy is idempotent and leaves nothing", s.destroys},
		{"attach finds it after a restart", s.attaches},
		{"attach sweeps what died meanwhile", s.sweeps},
		{"a paused place can be destroyed", s.destroysPaused(caps)},
		{"pause, snapshot and fork with memory", s.goesOn},
	} {
		t.Run(tt.name, tt.run)
	}
}

// goesOn takes a snapshot with memory of a paused place, and makes two of it.
func (s *suite) goesOn(t *testing.T) {
	b := s.create(t, nil)
	b.sh(t, `cd $HOME && mkfifo question && echo kept > file &&
		setsid sh -c 'n=100; while read x < question; do n=$((n+1)); echo $n > answer.new; mv answer.new answer; done' >/dev/null 2>&1 &
		until [ -p $HOME/question ]; do sleep 0.01; done`)
	const ask = `cd $HOME && rm -f answer && echo > question && until [ -e answer ]; do sleep 0.01; done; cat answer file`
	if got := b.sh(t, ask); got != "101\nkept" {
		t.Fatalf("before: %q", got)
	}
	if err := b.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := b.Snapshot(t.Context(), dir, true); err != nil {
		t.Fatal(err)
	}
	if err := b.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.sh(t, ask); got != "102\nkept" {
		t.Errorf("after it, the place itself: %q", got)
	}
	for range 2 {
		fork := s.create(t, func(sp *driver.Spec) { sp.From = dir })
		if got := fork.sh(t, ask); !strings.HasPrefix(got, "102\n") {
			t.Errorf("made from it: %q", got)
		}
	}
}
