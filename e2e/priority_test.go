package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/e2e/rig"
)

// What runs in a sandbox comes after the program that serves it, and ends before it where
// there is no memory left.
func TestServicesGoBeforeSandboxes(t *testing.T) {
	const normal = 20 // as the system call tells it; what is more goes before others
	nice := func(tid int) int {
		p, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
		if errors.Is(err, unix.ESRCH) {
			return normal + 1 // that thread has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if os.Geteuid() != 0 || nice(0) != normal {
		t.Skip("only for root, and where nobody has chosen a priority")
	}
	u := sharedUp(t)
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", u.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			t.Fatal(err)
		}
		if p := nice(tid); p <= normal {
			t.Errorf("a thread of a service has nice value %d", normal-p)
		}
	}
	box := u.Create(t)
	if out := rig.Output(u.Commands(t, box.ID, "nice").All(t), "stdout"); out != "0\n" {
		t.Errorf("in a sandbox, nice says %q", out)
	}
	if score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", u.PID())); mayOutlive() && (err != nil || string(score) != "-500\n") {
		t.Errorf("the score of a service is %q, %v", score, err)
	}
	if out := rig.Output(u.Commands(t, box.ID, "cat /proc/self/oom_score_adj").All(t), "stdout"); out != "300\n" { // a shim's is 200
		t.Errorf("the score in a sandbox is %q", out)
	}
}

// mayOutlive reports whether this process, and what it starts, may choose to end after
// others where there is no memory left, and has not.
func mayOutlive() bool {
	const path, lower, none = "/proc/self/oom_score_adj", "-1", "0"
	if was, err := os.ReadFile(path); err != nil || string(was) != none+"\n" || os.WriteFile(path, []byte(lower), 0) != nil {
		return false
	}
	return os.WriteFile(path, []byte(none), 0) == nil
}
