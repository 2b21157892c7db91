//go:build linux

package drivertest

import (
	"context"
	"encoding/gob"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// counter starts two processes that write counters to files as fast as they can: one in a
// session of its own, one that ignores every signal that can be ignored.
const counter = `cd $HOME
for name in one two; do
	setsid sh -c 'trap "" TERM HUP INT CONT TSTP; n=0; while :; do n=$((n+1)); echo $n > '$name'; done' >/dev/null 2>&1 &
done
until [ -s one ] && [ -s two ]; do :; done`

// cannotPause checks that a driver without pausing returns Unimplemented, and reports
// whether that is the case.
func cannotPause(t *testing.T, b *instance, caps driver.Caps) bool {
	t.Helper()
	if caps.Pause {
		return false
	}
	for what, call := range map[string]func(context.Context) error{"pause": b.Pause, "resume": b.Resume} {
		if err := call(t.Context()); !kind.Is(err, kind.Unimplemented) {
			t.Errorf("%s without Caps.Pause: %v, want Unimplemented", what, err)
		}
	}
	return true
}

func (s *suite) testPause(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		b := s.create(t, nil)
		if cannotPause(t, b, caps) {
			return
		}
		b.sh(t, counter)
		b.headless(t)
		// A process that another process inside has stopped.
		b.sh(t, `cd $HOME; sh -c 'echo stops > stopped; kill -STOP $$; echo goes > stopped' >/dev/null 2>&1 &
			until [ -s stopped ]; do :; done`)
		for range 2 {
			if err := b.Pause(t.Context()); err != nil {
				t.Fatalf("pause: %v", err)
			}
		}
		checkPaused(t, b.Instance)
		// A request during the pause waits, and is complete afterwards.
		answer := sendAsync(t, b.Instance, request{Args: []string{"echo", "asked during the pause"}, UID: -1})
		for range 2 {
			if err := b.Resume(t.Context()); err != nil {
				t.Fatalf("resume: %v", err)
			}
		}
		if got := <-answer; got != "asked during the pause\n" {
			t.Errorf("got %q", got)
		}
		if got := b.sh(t, `cd $HOME; was=$(cat one); until [ "$(cat one)" != "$was" ]; do :; done; cat stopped`); got != "stops" {
			t.Errorf("a process stopped before the pause wrote %q after it", got)
		}
	}
}

// checkPaused checks that no process of an instance runs: it uses no CPU time while the host
// does. The driver itself may need a moment to become idle, on a busy machine also after
// Pause; a running process would use time in each round.
func checkPaused(t *testing.T, in driver.Instance) {
	t.Helper()
	const rounds = 10
	var used time.Duration
	for range rounds {
		before := statsOf(t, in)
		burnCPU(t, 50*time.Millisecond)
		if used = statsOf(t, in).CPU - before.CPU; used <= time.Millisecond {
			return
		}
	}
	t.Errorf("it used %v of CPU time while paused", used)
}

// burnCPU uses that much CPU time.
func burnCPU(t *testing.T, much time.Duration) {
	t.Helper()
	runtime.LockOSThread() // it measures this thread
	defer runtime.UnlockOSThread()
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
		t.Fatal(err)
	}
	for end := at.Nano() + int64(much); at.Nano() < end; {
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
			t.Fatal(err)
		}
	}
}

func statsOf(t *testing.T, in driver.Instance) driver.Stats {
	t.Helper()
	st, err := in.Stats(t.Context())
	if err != nil {
		t.Fatalf("stats: %v", err)
	}
	return st
}

// sendAsync sends a request now and returns its response when it arrives; the instance may be paused.
func sendAsync(t *testing.T, in driver.Instance, req request) <-chan string {
	t.Helper()
	conn, err := in.Dial(t.Context())
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	conn.SetDeadline(time.Now().Add(waitTime))
	if err := gob.NewEncoder(conn).Encode(req); err != nil {
		t.Fatalf("ask: %v", err)
	}
	answer := make(chan string, 1)
	go func() {
		defer conn.Close()
		var resp response
		if err := gob.NewDecoder(conn).Decode(&resp); err != nil {
			resp.Out = err.Error()
		}
		answer <- resp.Out
	}()
	return answer
}

func (s *suite) testAttachPaused(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		b := s.create(t, nil)
		if cannotPause(t, b, caps) {
			return
		}
		b.sh(t, counter)
		if err := b.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		attached := b.attach(t, s.newDriver(t))
		checkPaused(t, attached)
		if err := attached.Resume(t.Context()); err != nil {
			t.Fatalf("resume in another run: %v", err)
		}
		if r := send(t, attached, request{Args: []string{"echo", "runs"}, UID: -1}); r.Out != "runs\n" {
			t.Errorf("got %q", r.Out)
		}
	}
}

func (s *suite) testDestroyPaused(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		b := s.create(t, nil)
		if cannotPause(t, b, caps) {
			return
		}
		b.sh(t, counter)
		if err := b.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > waitTime {
			t.Errorf("took %v", took)
		}
		checkClean(t, b.spec)
		for what, call := range map[string]func(context.Context) error{"pause": b.Pause, "resume": b.Resume} {
			if err := call(t.Context()); !kind.Is(err, kind.Unavailable) {
				t.Errorf("%s after destroy: %v, want Unavailable", what, err)
			}
		}
	}
}

func (s *suite) testPauseRaces(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		if !caps.Pause {
			t.Skip("the driver cannot pause")
		}
		b := s.create(t, nil)
		b.sh(t, counter)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for range 25 {
					do := b.Pause
					if i%2 == 0 {
						do = b.Resume
					}
					if err := do(t.Context()); err != nil && !kind.Is(err, kind.Unavailable) {
						t.Errorf("got %v", err)
					}
				}
				if err := b.Destroy(t.Context()); err != nil {
					t.Errorf("destroy: %v", err)
				}
			})
		}
		wg.Wait()
		checkClean(t, b.spec)
	}
}

func (s *suite) testStats(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) { s.checkStats(t, caps.Isolation == "machine") }
}

// checkStats measures an instance from outside; the inside of a virtual machine is invisible.
func (s *suite) checkStats(t *testing.T, machine bool) {
	b := s.create(t, func(sp *driver.Spec) { sp.MemoryMiB = 512 })
	b.sh(t, "true") // it has started
	idle := statsOf(t, b.Instance)
	if idle.Processes < 1 || idle.MemoryBytes == 0 {
		t.Errorf("idle: %+v", idle)
	}
	// A process that keeps a block of 64 MB, after 8 MB were written, half of them to a
	// deleted file, and at least 0.2 s of CPU time were used.
	b.sh(t, `cd $HOME; head -c 4194304 /dev/zero > file; sync file
		exec 3> gone; rm gone; head -c 4194304 /dev/zero >&3
		(while [ ${i:=0} -lt 300000 ]; do i=$((i+1)); done; dd if=/dev/zero bs=64M count=1 | (head -c 1 > ready; sleep 1000)) >/dev/null 2>&1 &
		until [ -s ready ]; do sleep 0.05; done`)
	busy := statsOf(t, b.Instance)
	if busy.Processes < idle.Processes+1 && !machine {
		t.Errorf("processes: %d, then %d", idle.Processes, busy.Processes)
	}
	for _, m := range []struct {
		what       string
		got, least uint64
	}{
		{"CPU microseconds", uint64((busy.CPU - idle.CPU).Microseconds()), 100_000},
		{"memory", busy.MemoryBytes - min(idle.MemoryBytes, busy.MemoryBytes), 60 << 20},
		{"disk", busy.DiskBytes - min(idle.DiskBytes, busy.DiskBytes), 8 << 20},
	} {
		if machine && m.what != "CPU microseconds" {
			continue // it may have had the memory before, and its disk is memory
		}
		if m.got < m.least || m.got > 1000*m.least {
			t.Errorf("%s: %d more than idle, want at least %d: %+v", m.what, m.got, m.least, busy)
		}
	}
}
