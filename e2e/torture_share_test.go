package e2e_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// spin returns a command that runs n busy loops for some seconds from a given time, each in a
// session of its own. It prints the elapsed seconds, and the user and system CPU seconds.
func spin(n, seconds int, from time.Time) string {
	return fmt.Sprintf(`sleep $(perl -MTime::HiRes=time -e '$w = %d.%09d - time; print $w > 0 ? $w : 0')
TIMEFORMAT='%%R %%U %%S'
time { for i in $(seq %d); do setsid -w timeout %d sh -c 'while :; do :; done' & done; wait; }`,
		from.Unix(), from.Nanosecond(), n, seconds)
}

// spun runs a command of spin and returns the elapsed and CPU seconds.
func spun(t *testing.T, a *rig.API, box, cmd string) (wall, cpu float64) {
	t.Helper()
	got, code := outputAndCode(t, a, box, cmd)
	var user, sys float64
	if _, err := fmt.Sscan(strings.TrimSpace(got), &wall, &user, &sys); err != nil || code != 0 || wall <= 0 {
		t.Errorf("%d %q: %v", code, got, err)
	}
	return wall, user + sys
}

// onlyShared skips the test if no cgroup divides the CPUs, or another kernel accounts for
// them.
func onlyShared(t *testing.T) {
	t.Helper()
	if !hostSeesProcesses(t) || os.Geteuid() != 0 {
		t.Skip("only with the driver namespace, as root")
	}
}

// TestCPULimitIsEnforced covers E87: a sandbox with one CPU gets one, however many processes
// spin.
func TestCPULimitIsEnforced(t *testing.T) {
	onlyShared(t)
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one CPU")
	}
	a := api(t)
	box, beside := a.Create(t, "cpuCount", 1).ID, a.Create(t).ID
	var wall, cpu float64
	var wg sync.WaitGroup
	wg.Go(func() { wall, cpu = spun(t, a, box, spin(2*runtime.NumCPU(), 3, time.Now())) })
	undisturbed(t, a, beside, "spinners")
	wg.Wait()
	t.Logf("%.2f s of CPU in %.2f s", cpu, wall)
	if cpu > 1.15*wall {
		t.Errorf("spinners with one CPU had %.2f s of CPU in %.2f s", cpu, wall)
	}
}

// TestCPUIsSharedEvenly covers E87: sandboxes without limits share the CPUs evenly, however
// many processes and sessions each has.
func TestCPUIsSharedEvenly(t *testing.T) {
	onlyShared(t)
	a := api(t)
	const many = 8 // processes per CPU
	counts := [2]int{runtime.NumCPU(), many * runtime.NumCPU()}
	from := time.Now().Add(time.Second)
	var cpu [2]float64
	var wg sync.WaitGroup
	for i, n := range counts {
		box := a.Create(t).ID
		wg.Go(func() { _, cpu[i] = spun(t, a, box, spin(n, 5, from)) })
	}
	wg.Wait()
	t.Logf("%v spinners had %.2f s of CPU", counts, cpu)
	if few, most := cpu[0], cpu[1]; few < most/2 || most < few/2 {
		t.Errorf("%v spinners had %.2f s of CPU, want about the same", counts, cpu)
	}
}
