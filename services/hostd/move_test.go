package hostd

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/helperbin"
)

// withMemory returns a rig whose driver keeps memory: gVisor's, if its program has been built.
func withMemory(t *testing.T) *rig {
	t.Helper()
	driver := os.Getenv("MILLRACE_TEST_DRIVER")
	if driver == "" {
		if _, err := helperbin.Runsc().Find(); err != nil {
			t.Skip(err)
		}
		driver = "gvisor"
	}
	return newRigOn(t, driver)
}

// memorySnapshot takes a snapshot with memory.
func (r *rig) memorySnapshot(sbx sandbox.ID) sandbox.Snapshot {
	r.t.Helper()
	if s, _ := r.view.Sandbox(sbx); !s.Can.Memory {
		r.t.Skipf("driver %s keeps no memory", s.Driver)
	}
	id := sandbox.NewSnapshotID()
	if _, err := r.call(process.NewID(sbx), command.TakeSnapshot{ID: id, Memory: true}); err != nil {
		r.t.Fatalf("snapshot: %v", err)
	}
	if err := r.view.Sync(r.ctx()); err != nil {
		r.t.Fatal(err)
	}
	s, ok := r.view.Snapshot(id)
	if !ok || !s.Memory {
		r.t.Fatalf("snapshot %+v", s)
	}
	return s
}

// counts returns a process that counts until it is terminated.
func counts() process.Spec {
	s := sh(`trap 'echo end; exit 0' TERM; i=0; while :; do echo $i; i=$((i+1)); sleep 0.01; done`)
	s.Env = map[string]string{"KEPT": "yes"}
	return s
}

// upTo returns a record's output on stdout in the events up to seq.
func (rec *processRecord) upTo(seq process.Seq) string {
	var b strings.Builder
	for _, e := range rec.events {
		if w, ok := e.Body.(process.Wrote); ok && e.Seq <= seq && w.Stream == process.Stdout {
			b.Write(w.Data)
		}
	}
	return b.String()
}

// wantCount checks that out is a count from 0 without gaps or repetitions, and returns its
// length.
func wantCount(t *testing.T, what, out string) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(out) {
		if line == "end\n" {
			continue
		}
		if line != fmt.Sprintln(n) {
			t.Fatalf("%s: got %q, want %d", what, line, n)
		}
		n++
	}
	return n
}

// from returns the first event of a record that continues another.
func (rec *processRecord) from(t *testing.T) process.Accepted {
	t.Helper()
	a, ok := rec.events[0].Body.(process.Accepted)
	if !ok || a.From == "" {
		t.Fatalf("first event without an origin: %+v", rec.events[0])
	}
	return a
}

// Processes continue in every sandbox created from a snapshot with memory, each with a record of
// its own, which continues the old one without a gap; the old one continues, too. That holds
// wherever the host is interrupted meanwhile.
func TestProcessesContinueInForks(t *testing.T) {
	for _, point := range []string{"", "moved", "snapshotted"} {
		t.Run(point, func(t *testing.T) {
			r := withMemory(t)
			if point == "" {
				r.begin()
			} else {
				interrupted := r.beginInterrupted(interruptAt(point, 1))
				defer func() {
					if !interrupted() {
						t.Error("the host was never interrupted")
					}
				}()
			}
			r.awaitLease(0)
			testForks(t, r)
		})
	}
}

func testForks(t *testing.T, r *rig) {
	t.Helper()
	first := r.sandbox()
	id := r.start(first, counts())
	over := r.start(first, sh("echo over"))
	r.whole(over)
	r.awaitOutput(id, "\n5\n")
	snap := r.memorySnapshot(first)
	forks := []sandbox.ID{r.createFrom(&snap).ID, r.createFrom(&snap).ID}
	ring := eventstest.Ring(t, r.log)
	for _, sbx := range forks {
		if err := r.view.Sync(r.ctx()); err != nil {
			t.Fatal(err)
		}
		all := r.view.Processes(sbx, func(s *process.Summary) bool { return s.Active() })
		if len(all) != 1 || all[0].ID.Token() != id.Token() || all[0].PID == 0 {
			t.Fatalf("processes of a fork: %+v", all)
		}
		if env, err := all[0].Spec.OpenEnv(ring, tenant, all[0].ID); err != nil || env["KEPT"] != "yes" || all[0].Spec.Env != nil {
			t.Fatalf("environment of a process of a fork: %v, %v; %v", env, err, all[0].Spec.Env)
		}
	}
	second := r.createFrom(new(r.memorySnapshot(forks[1]))).ID // a fork of a fork
	for _, sbx := range slices.Concat([]sandbox.ID{first, second}, forks) {
		p := process.IDOf(id.Token(), sbx)
		was := r.summary(p).PID
		r.read(p, func(rec *processRecord) bool { return strings.Count(rec.upTo(1<<60), "\n") > 20 })
		if _, err := r.call(p, command.Signal{Signal: 15}); err != nil {
			t.Errorf("signal in %s: %v", sbx, err)
		}
		if s := r.summary(p); s.PID != was {
			t.Errorf("pid %d, then %d", was, s.PID)
		}
	}
	origin := r.whole(id)
	wantCount(t, "origin", origin.upTo(1<<60))
	check := func(sbx sandbox.ID, before string) (whole string, rec *processRecord) {
		rec = r.whole(process.IDOf(id.Token(), sbx))
		whole = before + rec.upTo(1<<60)
		if n := wantCount(t, string(sbx), whole); n < 20 || describe(rec.end()) != "exited 0" || !strings.HasSuffix(whole, "end\n") {
			t.Errorf("%d lines, end %s", n, describe(rec.end()))
		}
		return whole, rec
	}
	var last *processRecord
	var before string
	for _, sbx := range forks {
		a := r.read(process.IDOf(id.Token(), sbx), func(*processRecord) bool { return true }).from(t)
		if a.From != id || a.Tenant != tenant || a.Spec.Cmd != "/bin/sh" {
			t.Errorf("first event %+v", a)
		}
		before = origin.upTo(a.After)
		_, last = check(sbx, before)
	}
	a := r.read(process.IDOf(id.Token(), second), func(*processRecord) bool { return true }).from(t)
	if a.From != process.IDOf(id.Token(), forks[1]) {
		t.Errorf("first event of a fork's fork %+v", a)
	}
	check(second, before+last.upTo(a.After))
	if rec := r.whole(r.start(forks[0], sh(`echo $E2B_SANDBOX_ID`))); string(rec.out[process.Stdout]) != string(forks[0])+"\n" {
		t.Errorf("process started in a fork: %q", rec.out[process.Stdout])
	}
}

// A process that was paused for the snapshot continues in the fork, and in its own sandbox stays
// paused.
func TestForkOfAPausedSandboxRuns(t *testing.T) {
	r := withMemory(t)
	r.begin()
	r.awaitLease(0)
	sbx, id := r.counting()
	r.ask(sbx, sandbox.PhasePaused, sandbox.Pausing{})
	snap := r.memorySnapshot(sbx)
	fork := process.IDOf(id.Token(), r.createFrom(&snap).ID)
	rec := r.whole(fork)
	a := rec.from(t)
	if !r.quiet(id) {
		t.Error("the snapshot resumed the paused sandbox")
	}
	r.ask(sbx, sandbox.PhaseRunning, sandbox.Resuming{})
	origin := r.whole(id)
	for what, out := range map[string]string{"origin": origin.upTo(1 << 60), "fork": origin.upTo(a.After) + rec.upTo(1<<60)} {
		if n := wantCount(t, what, out); n != 200 {
			t.Errorf("%s: %d lines", what, n)
		}
	}
}

// Random numbers differ between instances created from the same memory, and a terminal keeps its
// size.
func TestForksDiffer(t *testing.T) {
	r := withMemory(t)
	r.begin()
	r.awaitLease(0)
	sbx := r.sandbox()
	spec := sh(`read x; head -c 8 /dev/urandom | od -An -tx1; stty size`)
	spec.PTY = &process.Size{Cols: 99, Rows: 33}
	id := r.start(sbx, spec)
	r.read(id, func(rec *processRecord) bool { return len(rec.events) > 1 })
	snap := r.memorySnapshot(sbx)
	seen := map[string]bool{}
	for _, s := range []sandbox.ID{sbx, r.createFrom(&snap).ID, r.createFrom(&snap).ID} {
		p := process.IDOf(id.Token(), s)
		if _, err := r.call(p, command.Stdin{Data: []byte("\n")}); err != nil {
			t.Fatal(err)
		}
		out := string(r.whole(p).out[process.PTY])
		if seen[out] || !strings.Contains(out, "33 99") {
			t.Errorf("%s: output %q, want a unique one and size 33 99", s, out)
		}
		seen[out] = true
	}
}

// Input sent to a sandbox during a snapshot of its memory arrives even if nothing is sent after
// it.
func TestInputDuringASnapshotOfMemory(t *testing.T) {
	r := withMemory(t)
	r.begin()
	r.awaitLease(0)
	sbx := r.sandbox()
	spec := sh("wc -l")
	spec.Stdin = true
	id := r.start(sbx, spec)
	lines := 0
	for range 3 {
		kept := make(chan error, 1)
		go func() {
			_, err := r.call(process.NewID(sbx), command.TakeSnapshot{ID: sandbox.NewSnapshotID(), Memory: true})
			kept <- err
		}()
		for going := true; going; lines++ {
			if _, err := r.call(id, command.Stdin{Data: []byte("a line\n")}); err != nil {
				t.Fatalf("line %d: %v", lines, err)
			}
			select {
			case err := <-kept:
				if going = false; err != nil {
					t.Fatal(err)
				}
			default:
			}
		}
	}
	if _, err := r.call(id, command.Stdin{EOF: true}); err != nil {
		t.Fatal(err)
	}
	if out := strings.TrimSpace(string(r.whole(id).out[process.Stdout])); out != strconv.Itoa(lines) {
		t.Errorf("%s of %d lines arrived", out, lines)
	}
}
