//go:build linux

package namespace

import (
	"os"
	"os/exec"
	"testing"
)

// Who is stopped after it was destroyed leaves nothing where it was.
func TestAStopAfterTheEndLeavesNothing(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	s := signals{t.TempDir(), cmd.Process.Pid}
	if err := s.Freeze(t.Context()); err != nil {
		t.Errorf("freeze: %v", err)
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
