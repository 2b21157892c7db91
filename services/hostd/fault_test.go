package hostd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
)

var errInterrupted = errors.New("interrupted")

// interruptAt interrupts the host when it reaches a point for the n-th time.
func interruptAt(point string, n int) func(string) error {
	var mu sync.Mutex
	return func(at string) error {
		mu.Lock()
		defer mu.Unlock()
		if at == point {
			if n--; n <= 0 {
				return errInterrupted
			}
		}
		return nil
	}
}

// beginInterrupted starts a host with fault, and starts it again after it was interrupted.
func (r *rig) beginInterrupted(fault func(string) error) (interrupted func() bool) {
	r.cfg.Fault = fault
	first := r.begin()
	r.cfg.Fault = nil
	go func() {
		<-first.done
		if errors.Is(first.err, errInterrupted) {
			r.begin()
		}
	}()
	return func() bool { // the last points are reached while the test already checks
		late := time.NewTimer(testTimeout)
		defer late.Stop()
		select {
		case <-first.done:
			return true
		case <-late.C:
			return false
		}
	}
}

// Wherever a host is interrupted, with its next run every process was started once, every byte
// recorded once, and every record ended once.
func TestProcessesRunOnceWhereverTheHostIsInterrupted(t *testing.T) {
	for _, point := range Points {
		for _, n := range []int{1, 2, 4} {
			t.Run(fmt.Sprint(point, " ", n), func(t *testing.T) {
				t.Parallel()
				testInterrupted(newRig(t), t, point, n)
			})
		}
	}
}

func TestInterruptedWithNamespaces(t *testing.T) {
	for _, d := range Probe(t.Context()) {
		if d.Name == "namespace" && d.Err != nil {
			t.Skip(d.Err)
		}
	}
	for _, point := range []string{"created", "claimed", "spawned", "stored", "drained"} {
		t.Run(point, func(t *testing.T) { testInterrupted(newRigOn(t, "namespace"), t, point, 1) })
	}
}

// A host that is killed while its drivers probe leaves instances that are not in the journal. The
// next run removes them.
func TestRemainsOfAnInterruptedProbeAreRemoved(t *testing.T) {
	for _, name := range []string{"direct", "namespace"} {
		t.Run(name, func(t *testing.T) {
			r := newRigOn(t, "direct")
			d, err := drivers.New(r.cfg.driverConfig()).Driver(name)
			if err != nil {
				t.Skip(err)
			}
			if _, err := d.Probe(t.Context()); err != nil {
				t.Skip(err)
			}
			id := sandbox.NewID()
			spec := driver.Spec{ID: id, Dir: filepath.Join(r.cfg.scratch(), string(id)), ShimPath: os.Args[0], ShimArgs: []string{shimRole}, DiskMiB: 16}
			if err := os.MkdirAll(filepath.Join(r.cfg.scratch(), "partly", "created"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(spec.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			inst, err := d.Create(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			r.begin()
			r.awaitLease(0)
			select {
			case <-inst.Done():
			case <-time.After(testTimeout):
				t.Error("the instance of the probe still runs")
			}
			if left, err := os.ReadDir(r.cfg.scratch()); err == nil && len(left) > 0 {
				t.Errorf("directories left: %v", left)
			}
		})
	}
}

func testInterrupted(r *rig, t *testing.T, point string, n int) {
	interrupted := r.beginInterrupted(interruptAt(point, n))
	r.awaitLease(0)
	sbx := r.request(sandbox.Requested{Template: "base"})
	if s := r.awaitPhase(sbx, sandbox.PhaseRunning); !s.IsRunning() {
		t.Fatalf("sandbox %q: %s", s.Phase, s.Cause)
	}
	script := "cd; echo x >> forks; i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); done; read a; echo got $a; exit 5"
	dialog := r.start(sbx, process.Spec{Cmd: "/bin/sh", Args: []string{"-c", script}, Stdin: true})
	sleeper := r.start(sbx, sh("echo ready; sleep 60"))
	missing := r.start(sbx, process.Spec{Cmd: "true", Cwd: "/nope"})
	r.awaitOutput(dialog, "line 199")
	r.awaitOutput(sleeper, "ready")
	r.send(dialog, command.Stdin{Data: []byte("input\n")})
	var want strings.Builder
	for i := range 200 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	rec := r.whole(dialog)
	if got := string(rec.out[process.Stdout]); got != want.String()+"got input\n" || describe(rec.end()) != "exited 5" {
		t.Errorf("%d bytes ...%q, %s", len(got), got[max(0, len(got)-40):], describe(rec.end()))
	}
	if got := r.file(sbx, "forks"); got != "x\n" {
		t.Errorf("forks %q", got)
	}
	if rec := r.whole(missing); rec.types() != "accepted error end " {
		t.Errorf("missing cwd: %s", rec.types())
	}
	r.stopSandbox(sbx)
	if s := r.awaitPhase(sbx, sandbox.PhaseDestroyed); s.Phase != sandbox.PhaseDestroyed {
		t.Errorf("sandbox %q: %s", s.Phase, s.Cause)
	}
	if rec := r.whole(sleeper); !strings.HasPrefix(describe(rec.end()), "sandbox_gone") || string(rec.out[process.Stdout]) != "ready\n" {
		t.Errorf("sleeper: %s %q, %+v", describe(rec.end()), rec.out, rec.end())
	}
	for _, id := range []process.ID{dialog, sleeper, missing} {
		if sum := r.summary(id); sum.Active() || (id != missing && (sum.PID == 0 || sum.Started.IsZero())) {
			t.Errorf("active, or without its start, in the catalog: %+v", sum)
		}
	}
	if n == 1 && point != "cursorStored" && !interrupted() { // "cursorStored" depends on a timer
		t.Errorf("%s was never reached", point)
	}
}

// A shim dies: the records of its processes end as shim_lost, without an exit code.
func TestShimLost(t *testing.T) {
	r := newRunningRig(t)
	sbx := r.sandbox()
	id := r.start(sbx, sh("echo ready; sleep 60"))
	r.awaitOutput(id, "ready")
	r.killShim(sbx)
	if s := r.awaitPhase(sbx, sandbox.PhaseLost); s.Phase != sandbox.PhaseLost {
		t.Errorf("sandbox %q", s.Phase)
	}
	rec := r.whole(id)
	if describe(rec.end()) != "shim_lost" || rec.end().Seen() || rec.types() != "accepted start stdout exited end " {
		t.Errorf("%s: %s", describe(rec.end()), rec.types())
	}
}

// A shim dies while hostd does not run.
func TestShimLostBetweenRuns(t *testing.T) {
	r := newRunningRig(t)
	sbx := r.sandbox()
	id := r.start(sbx, sh("echo ready; sleep 60"))
	r.awaitOutput(id, "ready")
	epoch := r.awaitLease(0)
	r.kill()
	r.killShim(sbx)
	r.begin()
	r.awaitLease(epoch)
	if s := r.awaitPhase(sbx, sandbox.PhaseLost); s.Phase != sandbox.PhaseLost {
		t.Errorf("sandbox %q", s.Phase)
	}
	if rec := r.whole(id); describe(rec.end()) != "shim_lost" || rec.types() != "accepted start stdout exited end " {
		t.Errorf("%s: %s", describe(rec.end()), rec.types())
	}
}

// A reaper ended the record first: the process is killed, and nothing is appended.
func TestFencedProcess(t *testing.T) {
	r := newRunningRig(t)
	sbx := r.sandbox()
	dialog := r.start(sbx, process.Spec{Cmd: "sh", Args: []string{"-c", "echo ready; read x; echo more; sleep 60"}, Stdin: true})
	r.awaitOutput(dialog, "ready")
	w := r.log.Writer(record.Ref{Host: hostName, ID: dialog}, 1)
	tail, err := w.Recover(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	w = r.log.Writer(record.Ref{Host: hostName, ID: dialog}, tail.Epoch+1)
	if _, err := w.Recover(r.ctx()); err != nil {
		t.Fatal(err)
	}
	end := process.Exit{Cause: process.CauseHostLost}
	err = w.Append(r.ctx(), []process.Event{
		{Seq: tail.Last + 1, Body: process.Lost{Reason: "silent"}},
		{Seq: tail.Last + 2, Body: process.Finished{Exit: end}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.send(dialog, command.Stdin{Data: []byte("\n")})
	if rec := r.whole(dialog); describe(rec.end()) != "host_lost" {
		t.Errorf("%s", describe(rec.end()))
	}
}

// A process may be silent for longer than its record is kept, also across runs of its host.
func TestSilentForLongerThanTheRetention(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %t", restart), func(t *testing.T) {
			r := newRunningRig(t)
			sbx := r.sandbox()
			id := r.start(sbx, process.Spec{Cmd: "sh", Args: []string{"-c", "echo ready; read x; echo more; exit 3"}, Stdin: true})
			last := process.Seq(len(r.awaitOutput(id, "ready").events))
			epoch := r.awaitLease(0)
			if restart {
				r.kill()
			}
			eventstest.Forget(t, r.srv, "OUT_")
			if restart {
				r.begin()
				r.awaitLease(epoch)
			} else {
				eventstest.Forget(t, r.srv, "PROC")
			}
			r.send(id, command.Stdin{Data: []byte("\n")})
			tail := r.log.Read(record.Ref{Host: hostName, ID: id}, last)
			defer tail.Close()
			var out []byte
			for {
				batch, err := tail.Next(r.ctx(), 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range batch {
					switch b := e.Body.(type) {
					case process.Wrote:
						out = append(out, b.Data...)
					case process.Finished:
						if string(out) != "more\n" || describe(&b.Exit) != "exited 3" {
							t.Errorf("%q, %s", out, describe(&b.Exit))
						}
						return
					}
				}
			}
		})
	}
}

// declareGone marks the host's lease as gone, like a reaper.
func (r *rig) declareGone() {
	for {
		lease, rev, _, err := r.log.Lease(r.ctx(), hostName)
		if err != nil {
			r.t.Error(err)
			return
		}
		lease.Gone = true
		if _, err = r.log.PutLease(r.ctx(), lease, rev); err == nil {
			return
		}
		if !isKind(err, kind.Conflict) {
			r.t.Error(err)
			return
		}
	}
}

func TestFencedHost(t *testing.T) {
	r := newRig(t)
	first := r.begin()
	r.awaitLease(0)
	r.declareGone()
	r.awaitEnd(first)
	if !isKind(first.err, kind.Fenced) {
		t.Errorf("ended with %v", first.err)
	}
}

// NATS restarts under a process that writes all the time.
func TestNATSRestarts(t *testing.T) {
	r := newRunningRig(t)
	sbx := r.sandbox()
	id := r.start(sbx, sh("i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; exit 6"))
	for _, line := range []string{"line 20\n", "line 120\n", "line 220\n"} {
		r.awaitOutput(id, line)
		r.srv.Restart()
	}
	rec := r.whole(id)
	var want strings.Builder
	for i := range 300 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if string(rec.out[process.Stdout]) != want.String() || describe(rec.end()) != "exited 6" {
		t.Errorf("%d bytes, %s", len(rec.out[process.Stdout]), describe(rec.end()))
	}
}
