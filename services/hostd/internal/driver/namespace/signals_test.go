//go:build linux

package namespace

import (
	"os"
	"os/exec"
	"testing"
)

// Freeze after the sandbox was destroyed creates no files.
func TestFreezeAfterDestroyLeavesNothing(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	s := signals{t.TempDir(), cmd.Process.Pid}
	if err := s.Freeze(t.Context()); err != nil {
		t.Errorf("freeze: %v", err)
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
		t.Errorf("remaining: %v, %v", left, err)
	}
}
