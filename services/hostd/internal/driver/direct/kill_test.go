//go:build linux

package direct

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/millrace/millrace/events/sandbox"
)

// Without cgroups a process is known by its environment, whoever adopted it.
func TestKillMarked(t *testing.T) {
	id := sandbox.NewID()
	cmd := exec.Command("sleep", "1000")
	cmd.Env = append(os.Environ(), idVariable+"="+string(id))
	other := exec.Command("sleep", "1000")
	other.Env = append(os.Environ(), idVariable+"="+string(id)+"x")
	for _, c := range []*exec.Cmd{cmd, other} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer c.Process.Kill() //nolint:errcheck // one of them is dead
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := killMarked(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("it lives")
	}
	if err := killMarked(t.Context(), id, 0); err != nil {
		t.Error(err)
	}
	if err := other.Process.Kill(); err != nil {
		t.Errorf("the other one was killed too: %v", err)
	}
	other.Wait() //nolint:errcheck // killed
}
