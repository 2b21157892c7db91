package e2e_test

import (
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// envMany sets the number of processes of TestFaultHostKilledUnderAThousand.
const envMany = "MILLRACE_E2E_PROCESSES"

func many(t *testing.T) int {
	t.Helper()
	n := 1000
	if s := os.Getenv(envMany); s != "" {
		var err error
		n, err = strconv.Atoi(s)
		must(t, err)
	}
	return n
}

// running is one running counter.
type running struct {
	box, stream, id string
	pid             uint32
}

const (
	perSandbox   = 50 // processes per sandbox
	watchedEvery = 50 // one in this many is watched and writes often
)

// pace is how often processes write, depending on the driver.
type pace struct {
	watched, quiet counter
	lines          uint64        // lines of watched processes between two crashes, and after each
	noticed        time.Duration // see noticed
	within         time.Duration // timeout of all readers
	args           []string      // arguments of hostd
}

// paceOf returns the pace for the driver of this run. A line takes four times as much CPU
// in gVisor as in namespace, and a hundred times in an emulated guest: with too many lines
// readers would wait for the CPUs and not for killed programs.
func paceOf(t *testing.T) pace {
	t.Helper()
	if rig.Driver(t) == "microvm" {
		return pace{
			watched: counter{every: 500 * time.Millisecond, shell: true}, quiet: counter{every: time.Minute, shell: true},
			lines: 5, noticed: 20 * time.Second, within: 20 * time.Minute, args: []string{"--tcg"},
		}
	}
	if rig.Driver(t) == "gvisor" {
		return pace{
			watched: counter{every: 50 * time.Millisecond}, quiet: counter{every: 5 * time.Second},
			lines: 20, noticed: 5 * time.Second, within: crowdTimeout,
		}
	}
	return pace{
		watched: counter{every: 10 * time.Millisecond}, quiet: counter{every: time.Second},
		lines: 20, noticed: 5 * time.Second, within: crowdTimeout,
	}
}

// launchMany starts counters in many sandboxes, every fifth on a terminal, and
// watches some of them.
func launchMany(t *testing.T, s *rig.Split, c *crowd, n int, p pace) []running {
	t.Helper()
	a := s.APIs[0]
	all := make([]running, n)
	var wg sync.WaitGroup
	for from := 0; from < n; from += perSandbox {
		box := a.Create(t).ID
		for i := from; i < min(from+perSandbox, n); i++ {
			all[i].box, all[i].stream = box, "stdin"
		}
		wg.Go(func() { // a failure here fails the readers
			for i := from; i < min(from+perSandbox, n) && !t.Failed(); i++ {
				count := p.quiet
				if i%watchedEvery == 0 {
					count = p.watched
				}
				spec := count.spec()
				if i%5 == 1 {
					all[i].stream, spec = "pty", count.terminal()
				}
				all[i].id, all[i].pid = launch(t, a, all[i].box, spec)
			}
		})
		if from/perSandbox%4 == 3 {
			wg.Wait()
		}
	}
	wg.Wait()
	for i := 0; i < n; i += watchedEvery {
		c.watch(s.APIs, all[i].box, all[i].id, 0, "events")
	}
	return all
}

// readAll reads the records of all unwatched processes at the same time.
func readAll(t *testing.T, s *rig.Split, all []running, p pace) {
	t.Helper()
	begun := time.Now()
	c := newCrowdFor(t, p.within)
	for i := range all {
		if i%watchedEvery != 0 {
			c.watch(s.APIs, all[i].box, all[i].id, 0, "events")
		}
	}
	c.finish(t, counterCode)
	if d := c.paused(); d > p.quiet.every+p.noticed {
		t.Errorf("a process paused for %v", d)
	}
	t.Logf("%d quiet records read at once: %v, no longer a silence than %v", len(c.ledgers), time.Since(begun).Round(time.Millisecond), c.stalled().Round(time.Millisecond))
}

// The daemon of a host with a thousand processes in twenty sandboxes, a fifth on terminals,
// is killed and restarted repeatedly: no process loses or repeats a byte, or pauses. Covers
// T-52.
func TestFaultHostKilledUnderAThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute and 4 GiB")
	}
	p := paceOf(t)
	s := newTopology(t, rig.Topology{HostArgs: p.args})
	c := newCrowdFor(t, p.within)
	begun := time.Now()
	all := launchMany(t, s, c, many(t), p)
	t.Logf("%d processes run after %v", len(all), time.Since(begun).Round(time.Second))
	var without, stalls []time.Duration
	for range 8 {
		c.progress(t, p.lines)
		c.stalled()
		c.progress(t, p.lines)
		without = append(without, c.stalled())
		_, err := s.Crash("host-1")
		must(t, err)
		c.progress(t, p.lines)
		stalls = append(stalls, c.stalled())
	}
	must(t, s.Settled(1))
	for i := range all {
		stopCounter(t, s.APIs, all[i].box, all[i].pid, all[i].stream)
	}
	c.finish(t, counterCode)
	if d := c.paused(); d > p.watched.every+p.noticed {
		t.Errorf("a process paused for %v", d)
	}
	readAll(t, s, all, p)
	t.Logf("hostd killed under %d processes: silence %s, without that %s; the watched ones paused at most %v", len(all), percentiles(stalls), percentiles(without), c.paused())
}
