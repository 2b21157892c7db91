//go:build linux

package direct

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver/drivertest"
)

// Without cgroups a process is identified by its environment, regardless of its parent, also
// when its first thread has ended.
func TestKillMarked(t *testing.T) {
	id := sandbox.NewID()
	cmd := exec.Command("sleep", "1000")
	cmd.Env = append(os.Environ(), idVariable+"="+string(id))
	other := exec.Command("sleep", "1000")
	other.Env = append(os.Environ(), idVariable+"="+string(id)+"x")
	headless, err := drivertest.Headless("", cmd.Env)
	if err != nil {
		t.Fatal(err)
	}
	defer headless.Process.Kill()
	for _, c := range []*exec.Cmd{cmd, other} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer c.Process.Kill()
	}
	ended := make(chan error, 2)
	for _, c := range []*exec.Cmd{cmd, headless} {
		go func() { ended <- c.Wait() }()
	}
	if err := killMarked(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	for range cap(ended) {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("a process still runs")
		}
	}
	if err := killMarked(t.Context(), id, 0); err != nil {
		t.Error(err)
	}
	if err := other.Process.Kill(); err != nil {
		t.Errorf("the other one was killed too: %v", err)
	}
	other.Wait()
}
