package hostd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/journal"
	"github.com/millrace/millrace/services/hostd/internal/sandboxes"
)

func newRunningRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.begin()
	r.awaitLease(0)
	return r
}

func TestProcesses(t *testing.T) {
	r := newRunningRig(t)
	sbx := r.sandbox()
	tests := []struct {
		name           string
		spec           process.Spec
		stdout, stderr string
		exit, types    string
		outcome        process.Outcome
	}{
		{"true", process.Spec{Cmd: "true"}, "", "", "exited 0", "accepted start exited end ", process.OutcomeOK},
		{"output and a code", sh("echo out; exit 3"), "out\n", "", "exited 3", "accepted start stdout exited end ", process.OutcomeError},
		{"the sandbox's environment", sh("echo $E2B_SANDBOX $OF $E2B_TEMPLATE_ID"), "true sandbox base\n", "", "exited 0", "", process.OutcomeOK},
		{"missing program", process.Spec{Cmd: "no-such-program"}, "", "*not found", "exited 127", "", process.OutcomeError},
		{"missing cwd", process.Spec{Cmd: "true", Cwd: "/nope"}, "", "", "not_started", "accepted error end ", process.OutcomeError},
		{"timeout", process.Spec{Cmd: "sleep", Args: []string{"60"}, Timeout: 100 * time.Millisecond}, "", "", "timeout by 9", "accepted start exited end ", process.OutcomeKilled},
		{"ten megabytes", sh("head -c 10485760 /dev/zero | tr '\\0' x"), strings.Repeat("x", 10<<20), "", "exited 0", "", process.OutcomeOK},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			id := r.start(sbx, tt.spec)
			rec := r.whole(id)
			if got := string(rec.out[process.Stdout]); got != tt.stdout {
				t.Errorf("stdout of %d bytes, want %d: %.100q", len(got), len(tt.stdout), got)
			}
			got := string(rec.out[process.Stderr])
			if part, ok := strings.CutPrefix(tt.stderr, "*"); ok && !strings.Contains(got, part) || !ok && got != tt.stderr {
				t.Errorf("stderr %q, want %q", got, tt.stderr)
			}
			if describe(rec.end()) != tt.exit || tt.types != "" && rec.types() != tt.types {
				t.Errorf("%s: %s; want %s: %s", describe(rec.end()), rec.types(), tt.exit, tt.types)
			}
			sum := r.summary(id)
			if sum.Outcome() != tt.outcome || sum.Active() || sum.Ended.IsZero() || sum.Tenant != tenant || sum.Spec.Env != nil || sum.Spec.Sealed != "" {
				t.Errorf("summary %+v", sum)
			}
		})
	}
}

func TestCommandsReachTheProcess(t *testing.T) {
	r := newRunningRig(t)
	sbx := r.sandbox()
	id := r.start(sbx, process.Spec{Cmd: "cat", Stdin: true})
	r.read(id, func(rec *processRecord) bool { return len(rec.events) >= 2 })
	if reply, err := r.call(id, command.Stdin{Data: []byte("hello\n")}); err != nil || reply.Offset != 6 {
		t.Errorf("stdin: %+v, %v", reply, err)
	}
	r.awaitOutput(id, "hello\n")
	if _, err := r.call(id, command.Resize{Size: process.Size{Cols: 1, Rows: 1}}); err != nil {
		t.Errorf("resize: %v", err)
	}
	if _, err := r.call(id, command.Signal{Signal: sigKill}); err != nil {
		t.Errorf("kill: %v", err)
	}
	if sum := r.summary(id); !sum.Killed || sum.Outcome() != process.OutcomeKilled {
		t.Errorf("summary right after the kill: %+v", sum)
	}
	if rec := r.whole(id); describe(rec.end()) != "killed by 9" || !strings.Contains(rec.types(), "stdin_ack") {
		t.Errorf("%s: %s", describe(rec.end()), rec.types())
	}
	if _, err := r.call(id, command.Stdin{Data: []byte("x")}); !isKind(err, kind.NotFound) {
		t.Errorf("stdin after the end: %v", err)
	}
	if _, err := r.call(process.NewID(sbx), command.Signal{Signal: 9}); !isKind(err, kind.NotFound) {
		t.Errorf("signal to a process that does not exist: %v", err)
	}
}

// Two start commands for the same process start one process.
func TestStartIsExecutedOnce(t *testing.T) {
	r := newRunningRig(t)
	sbx := r.sandbox()
	spec := sh("cd; echo x >> forks")
	id := process.KeyedID(sbx, "key")
	for range 3 {
		r.send(id, command.Start{Spec: spec})
	}
	r.whole(id)
	r.send(id, command.Start{Spec: spec})
	r.whole(r.start(sbx, process.Spec{Cmd: "true"})) // the starts before it are done
	if got := r.file(sbx, "forks"); got != "x\n" {
		t.Errorf("forks %q", got)
	}
}

func TestStartWithoutASandbox(t *testing.T) {
	r := newRunningRig(t)
	rec := r.whole(r.start(sandbox.NewID(), process.Spec{Cmd: "true"}))
	if rec.types() != "accepted error end " || describe(rec.end()) != "not_started" {
		t.Errorf("%s %s", rec.types(), describe(rec.end()))
	}
}

func TestExpiredStart(t *testing.T) {
	r := newRunningRig(t)
	sbx := r.sandbox()
	c := newCommand(process.NewID(sbx), command.Start{Spec: process.Spec{Cmd: "true"}})
	c.Deadline = time.Now().Add(-time.Second)
	if err := r.log.Send(r.ctx(), hostName, c); err != nil {
		t.Fatal(err)
	}
	rec := r.whole(c.Process)
	if f, ok := rec.events[1].Body.(process.Failed); !ok || kind.Kind(f.Kind) != kind.Deadline {
		t.Errorf("%s %+v", rec.types(), rec.events)
	}
}

func TestSandboxEnds(t *testing.T) {
	r := newRunningRig(t)
	sbx := r.sandbox()
	id := r.start(sbx, sh("echo ready; sleep 60"))
	r.awaitOutput(id, "ready")
	r.stopSandbox(sbx)
	if s := r.awaitPhase(sbx, sandbox.PhaseDestroyed); s.Phase != sandbox.PhaseDestroyed || s.Cause != sandbox.CauseUser {
		t.Errorf("%q: %s", s.Phase, s.Cause)
	}
	rec := r.whole(id)
	if describe(rec.end()) != "sandbox_gone by 9" || string(rec.out[process.Stdout]) != "ready\n" {
		t.Errorf("%s %q", describe(rec.end()), rec.out)
	}
	if rec := r.whole(r.start(sbx, process.Spec{Cmd: "true"})); describe(rec.end()) != "not_started" {
		t.Errorf("start after the end: %s", rec.types())
	}
	if left, err := os.ReadDir(filepath.Join(r.cfg.DataDir, sandboxDir)); err != nil || len(left) != 0 {
		t.Errorf("directories left: %v %v", left, err)
	}
}

func TestSandboxThatCannotBeCreated(t *testing.T) {
	r := newRunningRig(t)
	id := r.request(sandbox.Requested{Driver: "no-such-driver"})
	if s := r.awaitPhase(id, sandbox.PhaseFailed); s.Phase != sandbox.PhaseFailed || !strings.Contains(s.Cause, "no-such-driver") {
		t.Errorf("%q: %s", s.Phase, s.Cause)
	}
}

func TestOutOfMemory(t *testing.T) {
	r := newRig(t)
	d, err := drivers.New(r.cfg.driverConfig()).Driver(r.cfg.Drivers[0])
	if err != nil {
		t.Fatal(err)
	}
	if caps, err := d.Probe(r.ctx()); err != nil || !caps.MemoryLimit {
		t.Skip("no memory cgroup", err)
	}
	r.begin()
	r.awaitLease(0)
	sbx := r.request(sandbox.Requested{Resources: sandbox.Resources{MemoryMiB: 64}})
	r.awaitPhase(sbx, sandbox.PhaseRunning)
	rec := r.whole(r.start(sbx, process.Spec{Cmd: "python3", Args: []string{"-c", "x = b'x' * (512 << 20)"}}))
	if describe(rec.end()) != "oom by 9" {
		t.Errorf("%s", describe(rec.end()))
	}
	if rec := r.whole(r.start(sbx, process.Spec{Cmd: "true"})); describe(rec.end()) != "exited 0" {
		t.Errorf("the sandbox did not survive the OOM kill: %s", describe(rec.end()))
	}
}

func TestDataDirectoryIsLocked(t *testing.T) {
	r := newRunningRig(t)
	if err := Run(r.ctx(), r.cfg); !isKind(err, kind.Conflict) {
		t.Errorf("got %v", err)
	}
}

// A journal may belong to another log, whose commands have nothing to do with its cursor.
func TestJournalOfAnotherLog(t *testing.T) {
	r := newRig(t)
	j, err := journal.Open(r.cfg.DataDir, r.cfg.Slog)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.SetCursor(1_000_000), j.SetSandbox("gone", journal.Created{Driver: "direct"}), j.Close()); err != nil {
		t.Fatal(err)
	}
	r.begin()
	r.awaitLease(0)
	if rec := r.whole(r.start(r.sandbox(), process.Spec{Cmd: "true"})); describe(rec.end()) != "exited 0" {
		t.Errorf("%s", describe(rec.end()))
	}
}

func TestHostLeavesItsSandboxesRunning(t *testing.T) {
	r := newRunningRig(t)
	sbx := r.sandbox()
	id := r.start(sbx, process.Spec{Cmd: "sh", Args: []string{"-c", "i=0; while read x; do echo $x; done; exit 4"}, Stdin: true})
	r.read(id, func(rec *processRecord) bool { return len(rec.events) >= 2 })
	r.kill()
	if err := r.view.Sync(r.ctx()); err != nil {
		t.Fatal(err)
	}
	h, _ := r.view.Host(hostName)
	if !h.Draining || !h.Starting || h.Gone { // creates wait for the next run
		t.Errorf("lease %+v", h.Lease)
	}
	r.begin()
	r.awaitLease(h.Epoch)
	if _, err := r.call(id, command.Stdin{Data: []byte("again\n"), EOF: true}); err != nil {
		t.Fatal(err)
	}
	if rec := r.whole(id); string(rec.out[process.Stdout]) != "again\n" || describe(rec.end()) != "exited 4" {
		t.Errorf("%q %s", rec.out, describe(rec.end()))
	}
}

// A host without its journal finds its sandboxes by their directories, and those that have ended
// meanwhile are lost.
func TestHostWithoutItsJournalAdoptsItsSandboxes(t *testing.T) {
	r := newRunningRig(t)
	running, gone := r.sandbox(), r.sandbox()
	id := r.start(running, process.Spec{Cmd: "sh", Args: []string{"-c", "while read x; do echo $x; done; exit 4"}, Stdin: true})
	r.read(id, func(rec *processRecord) bool { return len(rec.events) >= 2 })
	if reply, err := r.call(id, command.Stdin{Data: []byte("once\n")}); err != nil || reply.Offset != 5 {
		t.Fatalf("stdin: %+v, %v", reply, err)
	}
	r.awaitOutput(id, "once\n")
	r.kill()
	if err := os.Remove(filepath.Join(r.cfg.DataDir, journal.File)); err != nil {
		t.Fatal(err)
	}
	r.destroyBehind(gone)
	h, _ := r.view.Host(hostName)
	r.begin()
	r.awaitLease(h.Epoch)
	if _, err := r.call(id, command.Stdin{Data: []byte("again\n"), EOF: true}); err != nil {
		t.Fatal(err)
	}
	if rec := r.whole(id); string(rec.out[process.Stdout]) != "once\nagain\n" || describe(rec.end()) != "exited 4" {
		t.Errorf("%q %s", rec.out, describe(rec.end()))
	}
	r.awaitPhase(gone, sandbox.PhaseLost)
	r.stopSandbox(running)
	r.awaitPhase(running, sandbox.PhaseDestroyed)
	if left, err := os.ReadDir(filepath.Join(r.cfg.DataDir, sandboxDir)); err != nil || len(left) != 0 {
		t.Errorf("directories left: %v %v", left, err)
	}
}

// The remains of creates that a power failure interrupted are removed.
func TestRemainsOfInterruptedCreatesAreRemoved(t *testing.T) {
	r := newRig(t)
	for id, files := range map[string][]string{"i1": nil, "i2": {"state.json"}, "i3": {"state.json", "disk", "shim.sock"}} {
		dir := filepath.Join(r.cfg.DataDir, sandboxDir, id)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.begin()
	r.awaitLease(0)
	if n := r.dirs(); n != 0 {
		t.Errorf("%d directories left", n)
	}
}

// destroyBehind ends a sandbox without a trace while no host runs.
func (r *rig) destroyBehind(id sandbox.ID) {
	r.t.Helper()
	d, err := drivers.New(r.cfg.driverConfig()).Driver(r.cfg.Drivers[0])
	if err != nil {
		r.t.Fatal(err)
	}
	dir := filepath.Join(r.cfg.DataDir, sandboxDir, string(id))
	in, err := d.Attach(r.ctx(), driver.Spec{ID: id, Dir: dir})
	if err == nil {
		err = errors.Join(in.Destroy(r.ctx()), os.RemoveAll(dir))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestDestroyOnExit(t *testing.T) {
	r := newRig(t)
	r.cfg.DestroyOnExit = yes
	r.begin()
	r.awaitLease(0)
	sbx := r.sandbox()
	id := r.start(sbx, sh("echo ready; sleep 60"))
	r.awaitOutput(id, "ready")
	r.kill()
	if s := r.awaitPhase(sbx, sandbox.PhaseDestroyed); s.Cause != sandboxes.CauseHostStopped {
		t.Errorf("%+v", s)
	}
	if rec := r.whole(id); describe(rec.end()) != "sandbox_gone by 9" {
		t.Errorf("%s", describe(rec.end()))
	}
	if err := r.view.Sync(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if h, _ := r.view.Host(hostName); !h.Gone {
		t.Errorf("lease %+v", h.Lease)
	}
}
