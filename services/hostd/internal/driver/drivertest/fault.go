//go:build linux

package drivertest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// Environment variables of the test binary as a hostd that is going to be killed: its task and
// its sandbox. It prints "now" before it begins and "done" when it has finished.
const (
	victimTask = "DRIVERTEST_TASK" // "create" or "destroy"
	victimDir  = "DRIVERTEST_DIR"
)

// runVictimTask performs the task, if this process was started for one.
func runVictimTask(t *testing.T, d driver.Driver) {
	task, dir := os.Getenv(victimTask), os.Getenv(victimDir)
	if task == "" {
		return
	}
	s := driver.Spec{ID: sandbox.ID(filepath.Base(dir)), Dir: dir, ShimPath: self, ShimArgs: []string{shimArg}, MemoryMiB: 256, DiskMiB: 16}
	var in driver.Instance
	var err error
	if task == "destroy" {
		if in, err = d.Attach(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("now")
	if task == "create" {
		_, err = d.Create(t.Context(), s)
	} else {
		err = in.Destroy(t.Context())
	}
	fmt.Println("done", err)
	select {} // until it is killed
}

// startVictim starts a victim and returns when it begins.
func startVictim(t *testing.T, task, dir string) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.Command(self, "-test.run=^TestContract$", "-test.timeout=1m")
	// What a driver tries before its first instance is left there, too.
	cmd.Env = append(os.Environ(), victimTask+"="+task, victimDir+"="+dir, "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	word := make([]byte, 4)
	if _, err := io.ReadFull(out, word); err != nil || string(word) != "now\n" {
		t.Fatalf("output of the victim: %q, %v", word, err)
	}
	return cmd, out
}

// testKilled kills hostd at points spread over a task and checks each time that the
// next run finds what exists.
func (s *suite) testKilled(task string) func(*testing.T) {
	return func(t *testing.T) {
		s.killVictim(t, task, waitTime) // fills permanent caches
		whole := s.killVictim(t, task, waitTime)
		for i := range s.scale.Moments {
			s.killVictim(t, task, whole*time.Duration(i)/time.Duration(s.scale.Moments))
		}
	}
}

// killVictim kills a victim after a while, and returns how long the victim ran.
func (s *suite) killVictim(t *testing.T, task string, after time.Duration) time.Duration {
	t.Helper()
	d := s.newDriver(t)
	sp, root := spec(t)
	if task == "destroy" {
		sp.DiskMiB = 16
		if _, err := d.Create(t.Context(), sp); err != nil {
			t.Fatal(err)
		}
	}
	cmd, out := startVictim(t, task, sp.Dir)
	start := time.Now()
	finished := make(chan time.Duration, 1)
	go func() {
		io.ReadFull(out, make([]byte, 4))
		finished <- time.Since(start)
	}()
	worked := after
	select {
	case <-time.After(after):
	case worked = <-finished:
	}
	cmd.Process.Kill()
	cmd.Wait()

	ids, err := d.List(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	in, err := d.Attach(t.Context(), driver.Spec{ID: sp.ID, Dir: sp.Dir})
	switch {
	case err == nil:
		if !slices.Equal(ids, []sandbox.ID{sp.ID}) {
			t.Errorf("killed after %v: the instance runs, but the list is %v", after, ids)
		}
		if err := in.Destroy(context.Background()); err != nil {
			t.Errorf("killed after %v: destroy: %v", after, err)
		}
	case !kind.Is(err, kind.NotFound):
		t.Errorf("killed after %v: attach: %v", after, err)
	}
	awaitNoProcesses(sp)
	checkClean(t, sp)
	return worked
}

// awaitNoProcesses waits until the last process of a sandbox has ended: one that was not yet recorded
// ends by itself when its parent does, and what an abandoned tool had started, a
// moment after it. checkClean reports those that remain.
func awaitNoProcesses(sp driver.Spec) {
	eventually(func() bool { return len(pidsWith(sp.ID)) == 0 })
}
