package hostd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
)

// ask appends requests to a sandbox's record and waits for the phase that they lead to.
func (r *rig) ask(id sandbox.ID, want sandbox.Phase, bodies ...sandbox.Body) sandbox.State {
	r.t.Helper()
	_, err := r.view.ChangeSandbox(r.ctx(), id, func(sandbox.State) ([]sandbox.Body, error) { return bodies, nil })
	if err != nil {
		r.t.Fatal(err)
	}
	s := r.awaitPhase(id, want)
	if s.Phase != want {
		r.t.Fatalf("sandbox in phase %q (%s%s), want %q", s.Phase, s.Cause, s.Message, want)
	}
	return s
}

// counting returns a sandbox in which a process counts to 200. It skips the test if the driver
// cannot pause.
func (r *rig) counting() (sandbox.ID, process.ID) {
	r.t.Helper()
	sbx := r.sandbox()
	if s, _ := r.view.Sandbox(sbx); !s.Can.Pause {
		r.t.Skipf("driver %s cannot pause", s.Driver)
	}
	id := r.start(sbx, sh("i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); sleep 0.01; done"))
	r.awaitOutput(id, "\n5\n")
	return sbx, id
}

// wantAll checks that the count was recorded completely.
func (r *rig) wantAll(id process.ID) {
	r.t.Helper()
	rec := r.whole(id)
	if n := bytes.Count(rec.out[process.Stdout], []byte("\n")); n != 200 || describe(rec.end()) != "exited 0" {
		r.t.Errorf("%d lines, end %s; want 200 and exited 0", n, describe(rec.end()))
	}
}

// quiet waits until an open record no longer grows. It returns false if the process ends, or
// continues to write.
func (r *rig) quiet(id process.ID) bool {
	ctx := r.ctx()
	for was := process.Seq(0); ctx.Err() == nil; {
		tail, err := r.log.Tail(ctx, record.Ref{Host: hostName, ID: id})
		if err != nil {
			r.t.Fatal(err)
		}
		if tail.Finished != nil {
			return false
		}
		if tail.Last == was {
			return true
		}
		was = tail.Last
		<-time.After(500 * time.Millisecond) // many times the interval between two lines
	}
	return false
}

func TestPause(t *testing.T) {
	r := newRunningRig(t)
	sbx, id := r.counting()
	r.ask(sbx, sandbox.PhasePaused, sandbox.Pausing{Cause: sandbox.CauseUser})
	if !r.quiet(id) {
		t.Error("a process of a paused sandbox runs")
	}
	if _, err := r.call(id, command.Signal{Signal: 15}); !kind.Is(err, kind.Conflict) {
		t.Errorf("signal to a paused sandbox: %v", err)
	}
	if rec := r.whole(r.start(sbx, sh("true"))); describe(rec.end()) != "not_started" {
		t.Errorf("start in a paused sandbox: %s", rec.types())
	}
	s := r.ask(sbx, sandbox.PhaseRunning, sandbox.Resuming{}, sandbox.DeadlineSet{Deadline: time.Now().Add(time.Hour)})
	if s.Message != "" {
		t.Errorf("resumed with %q", s.Message)
	}
	r.wantAll(id)
	if rec := r.whole(r.start(sbx, sh("exit 3"))); describe(rec.end()) != "exited 3" {
		t.Errorf("start after a resume: %s", rec.types())
	}
}

// A command from a client that has not seen the pause resumes a sandbox with AutoResume, and is
// executed.
func TestCommandResumesASandbox(t *testing.T) {
	r := newRunningRig(t)
	sbx := r.request(sandbox.Requested{AutoResume: true})
	if s := r.awaitPhase(sbx, sandbox.PhaseRunning); !s.Can.Pause {
		t.Skipf("driver %s cannot pause", s.Driver)
	}
	cat := r.start(sbx, process.Spec{Cmd: "/bin/sh", Args: []string{"-c", "echo ready; exec cat"}, Stdin: true})
	r.awaitOutput(cat, "ready") // a start in flight would resume the sandbox, too
	for range 3 {
		r.awaitPhase(sbx, sandbox.PhaseRunning)
		r.ask(sbx, sandbox.PhasePaused, sandbox.Pausing{})
		if rec := r.whole(r.start(sbx, sh("echo resumed"))); string(rec.out[process.Stdout]) != "resumed\n" {
			t.Errorf("start in a paused sandbox: %s", rec.types())
		}
		r.awaitPhase(sbx, sandbox.PhaseRunning)
		r.ask(sbx, sandbox.PhasePaused, sandbox.Pausing{})
		if _, err := r.call(cat, command.Stdin{Data: []byte("x")}); err != nil {
			t.Errorf("input to a paused sandbox: %v", err)
		}
		if s, _ := r.view.Sandbox(sbx); time.Until(s.Deadline) < 4*time.Minute {
			t.Errorf("resumed until %v", s.Deadline)
		}
	}
}

// The timeout of a process does not count the time in which its sandbox is paused.
func TestTimeoutDoesNotCountAPause(t *testing.T) {
	r := newRunningRig(t)
	sbx, _ := r.counting()
	spec := sh("cd; until [ -e go ]; do sleep 0.01; done")
	spec.Timeout = 10 * time.Second
	id := r.start(sbx, spec)
	r.read(id, func(rec *processRecord) bool { return len(rec.events) > 1 })
	r.ask(sbx, sandbox.PhasePaused, sandbox.Pausing{})
	<-time.After(spec.Timeout + time.Second)
	r.ask(sbx, sandbox.PhaseRunning, sandbox.Resuming{})
	r.start(sbx, sh("cd; touch go"))
	if x := r.whole(id).end(); describe(x) != "exited 0" {
		t.Errorf("process that was paused for longer than its timeout: %s", describe(x))
	}
	over := r.start(sbx, process.Spec{Cmd: "sleep", Args: []string{"60"}, Timeout: time.Second})
	if x := r.whole(over).end(); x.Cause != process.CauseTimeout {
		t.Errorf("process with a timeout: %s", describe(x))
	}
}

// A kernel of the sandbox's own does not see the time of a pause pass: its clock is set on
// resume, by whichever run of the host.
func TestClockIsRightAfterAPause(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed %v", killed), func(t *testing.T) {
			r := newRunningRig(t)
			sbx, _ := r.counting()
			r.ask(sbx, sandbox.PhasePaused, sandbox.Pausing{})
			if killed {
				r.kill()
				r.begin()
				r.awaitLease(1)
			}
			const pause = 4 * time.Second
			<-time.After(pause)
			r.ask(sbx, sandbox.PhaseRunning, sandbox.Resuming{})
			before := time.Now()
			rec := r.whole(r.start(sbx, sh("date +%s")))
			said, err := strconv.ParseInt(strings.TrimSpace(string(rec.out[process.Stdout])), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if late := before.Sub(time.Unix(said, 0)); late > pause/2 {
				t.Errorf("the clock is %v late after a pause of %v", late, pause)
			}
		})
	}
}

// A paused sandbox stays paused across runs of its host, and the output that it had when it was
// paused is stored when it is resumed.
func TestPauseSurvivesARestart(t *testing.T) {
	r := newRunningRig(t)
	sbx, id := r.counting()
	r.ask(sbx, sandbox.PhasePaused, sandbox.Pausing{Cause: sandbox.CauseUser})
	r.kill()
	r.begin()
	r.awaitLease(1)
	if !r.quiet(id) {
		t.Error("a process of a paused sandbox runs in the next run of the host")
	}
	r.ask(sbx, sandbox.PhaseRunning, sandbox.Resuming{})
	r.wantAll(id)
}

// A sandbox paused with files alone has them when it is resumed, and no process from before; so
// has one that is rebooted, also across runs of its host.
func TestReboot(t *testing.T) {
	for i, tt := range []struct {
		name   string
		pause  sandbox.Pausing
		resume sandbox.Resuming
		killed bool
	}{
		{"paused with files alone", sandbox.Pausing{Files: true}, sandbox.Resuming{}, false},
		{"rebooted", sandbox.Pausing{}, sandbox.Resuming{Reboot: true}, false},
		{"by the next run of its host", sandbox.Pausing{Files: true}, sandbox.Resuming{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRunningRig(t)
			sbx, id := r.counting()
			hidden := r.start(sbx, sh(fmt.Sprintf("echo kept > file; setsid sh -c 'sleep 75.%[1]d; sleep 75.%[1]d' & echo ready; wait", i)))
			r.awaitOutput(hidden, "ready")
			r.ask(sbx, sandbox.PhasePaused, tt.pause)
			if s := r.summary(id); s.Active() == tt.pause.Files {
				t.Errorf("a process of the paused sandbox is active: %v", s.Active())
			}
			if tt.killed {
				r.kill()
				r.begin()
				r.awaitLease(1)
			}
			if s := r.ask(sbx, sandbox.PhaseRunning, tt.resume); s.Message != "" {
				t.Errorf("resumed with %q", s.Message)
			}
			for _, p := range []process.ID{id, hidden} {
				if s := r.summary(p); s.Active() {
					t.Error("the sandbox runs before its processes have ended")
				}
				if rec := r.whole(p); describe(rec.end()) != "signaled by 9" {
					t.Errorf("process from before the reboot: %s", describe(rec.end()))
				}
			}
			rec := r.whole(r.start(sbx, sh(fmt.Sprintf("cat file; pgrep -f '[7]5[.]%d'; true", i))))
			if got := string(rec.out[process.Stdout]); got != "kept\n" {
				t.Errorf("output %q, want kept", got)
			}
		})
	}
}

// Wherever the host is interrupted while it pauses or resumes a sandbox, its next run does what
// the record requests, once.
func TestInterruptedPause(t *testing.T) {
	for _, point := range []string{"pausing", "paused", "resuming", "resumed"} {
		t.Run(point+", rebooted", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			interrupted := r.beginInterrupted(interruptAt(point, 1))
			sbx, id := r.counting()
			r.ask(sbx, sandbox.PhasePaused, sandbox.Pausing{Files: true})
			r.ask(sbx, sandbox.PhaseRunning, sandbox.Resuming{})
			if rec := r.whole(id); describe(rec.end()) != "signaled by 9" || !interrupted() {
				t.Errorf("%s, interrupted %v", describe(rec.end()), interrupted())
			}
		})
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			interrupted := r.beginInterrupted(interruptAt(point, 1))
			sbx, id := r.counting()
			r.ask(sbx, sandbox.PhasePaused, sandbox.Pausing{Cause: sandbox.CauseUser})
			r.ask(sbx, sandbox.PhaseRunning, sandbox.Resuming{})
			r.wantAll(id)
			if !interrupted() {
				t.Error("the host was never interrupted")
			}
		})
	}
}

// Wherever the host is interrupted while it replaces the instance of a rebooted sandbox, its next
// run has one instance with the files, and no other is left.
func TestInterruptedReboot(t *testing.T) {
	for _, point := range []string{"rebuilt", "renewed"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, cmp.Or(os.Getenv("MILLRACE_TEST_DRIVER"), "namespace"))
			interrupted := r.beginInterrupted(interruptAt(point, 1))
			sbx, id := r.counting()
			if s, _ := r.view.Sandbox(sbx); !s.Can.Files {
				t.Skipf("driver %s keeps no files", s.Driver)
			}
			r.whole(r.start(sbx, sh("echo kept > file; echo gone > /dev/shm/file")))
			r.ask(sbx, sandbox.PhasePaused, sandbox.Pausing{Files: true})
			r.ask(sbx, sandbox.PhaseRunning, sandbox.Resuming{})
			rec := r.whole(r.start(sbx, sh("cat file; ls /dev/shm")))
			if got := string(rec.out[process.Stdout]); got != "kept\n" || !interrupted() {
				t.Errorf("output %q, interrupted %v", got, interrupted())
			}
			if end := describe(r.whole(id).end()); end != "signaled by 9" {
				t.Errorf("process from before the reboot: %s", end)
			}
			until(t, "instances", 1, r.dirs)
		})
	}
}

func TestPausedSandboxEnds(t *testing.T) {
	r := newRunningRig(t)
	sbx, id := r.counting()
	r.ask(sbx, sandbox.PhasePaused, sandbox.Pausing{Cause: sandbox.CauseUser})
	r.stopSandbox(sbx)
	r.awaitPhase(sbx, sandbox.PhaseDestroyed)
	if rec := r.whole(id); rec.end() == nil || rec.end().Cause != process.CauseSandboxGone {
		t.Errorf("process of a sandbox that ended while paused: %s", describe(rec.end()))
	}
}

// noPause is a driver that cannot pause.
type noPause struct{ driver.Driver }

type noPauseInstance struct{ driver.Instance }

func (d noPause) Probe(ctx context.Context) (driver.Caps, error) {
	caps, err := d.Driver.Probe(ctx)
	caps.Pause = false
	return caps, err
}

func (d noPause) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	inst, err := d.Driver.Create(ctx, s)
	return noPauseInstance{inst}, err
}

func (noPauseInstance) Pause(context.Context) error {
	return kind.New(kind.Unimplemented, "pause", "", "not supported")
}

// The record has the failure of a pause; at a deadline the sandbox ends instead.
func TestPauseThatFails(t *testing.T) {
	r := newRig(t)
	r.cfg.drivers = []driver.Driver{noPause{direct.New(direct.Config{})}}
	r.begin()
	r.awaitLease(0)
	for cause, want := range map[string]sandbox.Phase{sandbox.CauseUser: sandbox.PhaseRunning, sandbox.CauseTimeout: sandbox.PhaseDestroyed} {
		sbx := r.sandbox()
		if s, _ := r.view.Sandbox(sbx); s.Can.Pause {
			t.Error("the record has the ability to pause")
		}
		_, err := r.view.ChangeSandbox(r.ctx(), sbx, func(sandbox.State) ([]sandbox.Body, error) {
			return []sandbox.Body{sandbox.Pausing{Cause: cause}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if s := r.awaitPhase(sbx, want); s.Phase != want || want == sandbox.PhaseRunning && s.Message == "" {
			t.Errorf("after a pause for %s: %s, %q", cause, s.Phase, s.Message)
		}
	}
}

// The usage of a sandbox is recorded from time to time, and not while it is paused.
func TestSamplesAreRecorded(t *testing.T) {
	r := newRig(t)
	r.cfg.SampleEvery = 50 * time.Millisecond
	r.begin()
	r.awaitLease(0)
	sbx, id := r.counting()
	samples := func() []catalog.Sample {
		t.Helper()
		got, err := r.log.Samples(r.ctx(), hostName, sbx, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	r.whole(id)
	got := samples()
	if len(got) < 2 || got[len(got)-1].CPU <= 0 || got[len(got)-1].CPU < got[0].CPU || got[len(got)-1].MemoryBytes == 0 || got[len(got)/2].Processes < 2 {
		t.Errorf("samples %+v", got)
	}
	r.ask(sbx, sandbox.PhasePaused, sandbox.Pausing{})
	before := samples()
	<-time.After(10 * r.cfg.SampleEvery)
	if after := samples(); len(after) > len(before)+1 { // one may have been in flight
		t.Errorf("%d samples of a paused sandbox", len(after)-len(before))
	}
}
