package schedtick_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/schedtick"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == schedtick.Arg {
		os.Exit(schedtick.Main())
	}
	os.Exit(m.Run())
}

func TestEachCPUTicksUntilStop(t *testing.T) {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		t.Fatal(err)
	}
	ticker, err := schedtick.Start(t.Context(), "/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer ticker.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ticked := 0; ticked < cpus.Count(); {
		if ctx.Err() != nil {
			t.Fatalf("%d of %d CPUs tick", ticked, cpus.Count())
		}
		ticked = 0
		for _, n := range wakes(t, ticker.PID()) {
			if n >= 100 {
				ticked++
			}
		}
	}
	ticker.Stop()
	if err := unix.Kill(ticker.PID(), 0); err != unix.ESRCH {
		t.Errorf("the child still runs: %v", err)
	}
}

// wakes returns how often the threads of a process that are bound to one CPU have woken up,
// per CPU.
func wakes(t *testing.T, pid int) map[int]int {
	t.Helper()
	out := map[int]int{}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		is := map[string]string{}
		for line := range strings.Lines(string(b)) {
			name, value, _ := strings.Cut(line, ":")
			is[name] = strings.TrimSpace(value)
		}
		cpu, err := strconv.Atoi(is["Cpus_allowed_list"]) // fails for a thread with several CPUs
		if n, bad := strconv.Atoi(is["voluntary_ctxt_switches"]); err == nil && bad == nil {
			out[cpu] += n
		}
	}
	return out
}
