package hostd

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/journal"
	"github.com/millrace/millrace/services/hostd/internal/snapshots"
)

// pair starts two hosts with one log, node1 and node2.
func pair(t *testing.T, change func(*Config)) (one, two *rig) {
	t.Helper()
	one = newRig(t)
	one.cfg.Name, one.cfg.CopyAhead = "node1", 0
	two = newHost(t, one, "node2", cmp.Or(os.Getenv("MILLRACE_TEST_DRIVER"), "direct"))
	two.cfg.CopyAhead = 0
	for _, r := range []*rig{one, two} {
		if change != nil {
			change(&r.cfg)
		}
		r.begin()
		r.awaitLease(0)
	}
	return one, two
}

// copyTimeout allows for a copy with memory, which has the shim: 36 MB with the race detector.
const copyTimeout = 3 * time.Minute

// awaitCopy waits until done returns true for a snapshot's copy.
func (r *rig) awaitCopy(id sandbox.SnapshotID, done func(*sandbox.Copy) bool) sandbox.Snapshot {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), copyTimeout)
	defer cancel()
	s, err := r.view.AwaitSnapshot(ctx, id, func(s *sandbox.Snapshot) bool { return s.ID == id && done(&s.Copy) })
	if err != nil {
		r.t.Fatalf("the copy %.200q, refused %q: %v", s.Copy.Manifest, s.Copy.Reason, err)
	}
	return s
}

func copied(c *sandbox.Copy) bool { return c.Manifest != "" && !c.Wanted }

// keptText creates a sandbox with a file, takes a snapshot of it, and ends the sandbox.
func (r *rig) keptText(text string) sandbox.Snapshot {
	r.t.Helper()
	sbx := r.sandbox()
	if s, _ := r.view.Sandbox(sbx); !s.Can.Files {
		r.t.Skipf("driver %s keeps no files here", s.Driver)
	}
	r.write(sbx, text)
	snap := r.snapshot(sbx)
	r.stopSandbox(sbx)
	r.awaitPhase(sbx, sandbox.PhaseDestroyed)
	return snap
}

// A snapshot is usable on another host, also when its own is gone for good, and on one that joins
// later; a sandbox created from it has its files, and can have a snapshot, too.
func TestASnapshotOutlivesItsHost(t *testing.T) {
	one, two := pair(t, nil)
	snap := one.keptText("then")
	snap = one.awaitCopy(snap.ID, copied)
	one.kill()
	s := two.createFrom(&snap)
	if got := two.file(s.ID, "file"); got != "then\n" {
		t.Fatalf("on another host the file has %q; %s %s", got, s.Phase, s.Cause)
	}
	again := two.snapshot(s.ID)
	again = two.awaitCopy(again.ID, copied)
	two.stopSandbox(s.ID)
	two.awaitPhase(s.ID, sandbox.PhaseDestroyed)
	two.kill()
	three := newHost(t, one, "node3", one.cfg.Drivers[0])
	three.begin()
	three.awaitLease(0)
	s = three.createFrom(&again)
	if got := three.file(s.ID, "file"); got != "then\n" {
		t.Errorf("on a host that joined later the file has %q; %s %s", got, s.Phase, s.Cause)
	}
}

// A host does not evict a copy that a sandbox is based on, also after a restart.
func TestCopyInUseSurvivesARestart(t *testing.T) {
	one, two := pair(t, func(cfg *Config) { cfg.TemplateCache = 1 })
	snap := one.keptText("then")
	snap = one.awaitCopy(snap.ID, copied)
	s := two.createFrom(&snap)
	two.write(s.ID, "now")
	two.kill()
	if on := two.stored()[s.ID].Trees; len(on) != 1 || on[0] != snapshots.CopyID(&snap.Copy) {
		t.Errorf("trees in the journal: %v", on)
	}
	two.begin()
	two.awaitLease(1)
	if got := two.file(s.ID, "file"); got != "now\n" {
		t.Fatalf("in the next run the file has %q", got)
	}
	trees := func() int {
		n, _ := filepath.Glob(filepath.Join(two.cfg.DataDir, templatesDir, "*", "root"))
		return len(n)
	}
	if trees() != 1 {
		t.Errorf("%d trees in the cache, want the one in use", trees())
	}
	two.stopSandbox(s.ID)
	two.awaitPhase(s.ID, sandbox.PhaseDestroyed)
	one.forget(snap)
	two.awaitTrue(func() bool { return trees() == 0 })
}

// stored returns what the journal has of the sandboxes of a host that does not run.
func (r *rig) stored() map[sandbox.ID]journal.Created {
	r.t.Helper()
	j, err := journal.Open(r.cfg.DataDir, r.cfg.Slog)
	if err != nil {
		r.t.Fatal(err)
	}
	defer j.Close()
	all, err := j.Sandboxes()
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// awaitTrue waits until done returns true; it checks after every change of the log.
func (r *rig) awaitTrue(done func() bool) {
	r.t.Helper()
	changed, stop := r.view.Changes()
	defer stop()
	ctx := r.ctx()
	for !done() {
		select {
		case <-changed:
		case <-ctx.Done():
			r.t.Fatal("the condition was never met")
		}
	}
}

// A snapshot that is not copied in advance is copied when another host needs it.
func TestCopyOnDemand(t *testing.T) {
	one, two := pair(t, func(cfg *Config) { cfg.CopyAhead = -1 })
	snap := one.keptText("then")
	if now, _ := one.view.Snapshot(snap.ID); now.Copy != (sandbox.Copy{}) {
		t.Errorf("copied in advance: %+v", now.Copy)
	}
	s := two.createFrom(&snap)
	if got := two.file(s.ID, "file"); got != "then\n" {
		t.Errorf("file has %q; %s %s", got, s.Phase, s.Cause)
	}
}

// Without a copy, a snapshot is unavailable when its host is gone, and a sandbox created from it
// fails with that reason.
func TestSnapshotWithoutCopyOrHostFails(t *testing.T) {
	one, two := pair(t, func(cfg *Config) { cfg.CopyAhead = -1 })
	snap := one.keptText("then")
	one.kill()
	two.awaitTrue(func() bool { h, _ := two.view.Host("node1"); return !h.Alive(time.Now()) })
	if s := two.createFrom(&snap); s.Phase != sandbox.PhaseFailed || !strings.Contains(s.Cause, "host node1 only") {
		t.Errorf("%s: %q", s.Phase, s.Cause)
	}
}

// A host that cannot use a snapshot refuses it without trying.
func TestUnusableSnapshotIsRefused(t *testing.T) {
	one, two := pair(t, nil)
	snap := one.keptText("then")
	snap = one.awaitCopy(snap.ID, copied)
	snap.Fits = "another machine's"
	if err := one.log.PutSnapshot(one.ctx(), &snap); err != nil {
		t.Fatal(err)
	}
	if err := one.view.Sync(one.ctx()); err != nil {
		t.Fatal(err)
	}
	if s := two.createFrom(&snap); s.Phase != sandbox.PhaseFailed || !strings.Contains(s.Cause, "another machine's") {
		t.Errorf("%s: %q", s.Phase, s.Cause)
	}
}

// A copy that is damaged in the store is detected on arrival and replaced by a host that has the
// files; without one it is refused, and nothing of it stays.
func TestDamagedCopyIsReplaced(t *testing.T) {
	one, two := pair(t, nil)
	snap := one.keptText("then")
	snap = one.awaitCopy(snap.ID, copied)
	m, _, err := template.Decode([]byte(snap.Copy.Manifest))
	if err != nil {
		t.Fatal(err)
	}
	damage := func() {
		t.Helper()
		if err := one.log.CopyStore().Put(one.ctx(), m.Parts[0], []byte("no part at all"), true); err != nil {
			t.Fatal(err)
		}
	}
	damage()
	s := two.createFrom(&snap)
	if got := two.file(s.ID, "file"); got != "then\n" {
		t.Fatalf("after the repair, the file has %q; %s %s", got, s.Phase, s.Cause)
	}
	two.stopSandbox(s.ID)
	two.awaitPhase(s.ID, sandbox.PhaseDestroyed)
	one.kill()
	two.kill()
	damage()
	three := newHost(t, one, "node3", one.cfg.Drivers[0])
	three.begin()
	three.awaitLease(0)
	if s := three.createFrom(&snap); s.Phase != sandbox.PhaseFailed || !strings.Contains(s.Cause, "host node1 only") {
		t.Errorf("without a host to repair it: %s: %q", s.Phase, s.Cause)
	}
	if left, _ := filepath.Glob(filepath.Join(three.cfg.DataDir, templatesDir, "*-*")); len(left) > 0 {
		t.Errorf("directories left: %v", left)
	}
}

// A host that is interrupted during a copy continues it in its next run.
func TestInterruptedCopyContinues(t *testing.T) {
	one := newRig(t)
	one.cfg.Name, one.cfg.CopyAhead = "node1", 0
	var cuts atomic.Int32
	one.cfg.Fault = func(point string) error {
		if point == "copying" && cuts.Add(1) == 1 {
			return errInterrupted
		}
		return nil
	}
	l := one.begin()
	one.awaitLease(0)
	sbx := one.sandbox()
	one.write(sbx, "then")
	id := sandbox.NewSnapshotID()
	one.send(process.NewID(sbx), command.TakeSnapshot{ID: id})
	snap := one.awaitCopy(id, func(*sandbox.Copy) bool { return true })
	<-l.done
	if !errors.Is(l.err, errInterrupted) {
		t.Fatalf("the host ended by %v", l.err)
	}
	if now, _ := one.view.Snapshot(snap.ID); now.Copy != (sandbox.Copy{}) {
		t.Errorf("the log has a partial copy: %+v", now.Copy)
	}
	one.begin()
	one.awaitLease(1)
	one.awaitCopy(snap.ID, copied)
}

// A full store fails the sandbox that needs the copy, and affects no other; with free space the
// copy works.
func TestFullStoreFailsOnlyTheCopy(t *testing.T) {
	one, two := pair(t, func(cfg *Config) { cfg.CopyAhead = -1 })
	small, err := events.Open(t.Context(), events.Config{InProcess: one.srv, MaxStore: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	var sums []template.Sum
	for err == nil {
		data := []byte(strings.Repeat(rand.Text(), 20<<10)) // half a MiB that does not compress
		sums = append(sums, template.SumOf(data))
		err = small.PutPart(t.Context(), sums[len(sums)-1], data)
	}
	if !kind.Is(err, kind.Exhausted) {
		t.Fatalf("after %d parts: %v", len(sums), err)
	}
	sbx := one.sandbox()
	if rec := one.whole(one.start(sbx, sh("echo then > ~/file; head -c 2000000 /dev/urandom > ~/noise"))); describe(rec.end()) != "exited 0" {
		t.Fatal(describe(rec.end()))
	}
	snap := one.snapshot(sbx)
	if s := two.createFrom(&snap); s.Phase != sandbox.PhaseFailed || !strings.Contains(s.Cause, "store is full") {
		t.Errorf("with a full store: %s: %q", s.Phase, s.Cause)
	}
	if s := one.createFrom(&snap); one.file(s.ID, "file") != "then\n" {
		t.Errorf("on its own host: %s: %q", s.Phase, s.Cause)
	}
	for _, sum := range sums {
		if err := small.RemovePart(t.Context(), sum); err != nil {
			t.Fatal(err)
		}
	}
	if s := two.createFrom(&snap); two.file(s.ID, "file") != "then\n" {
		t.Errorf("with free space: %s: %q", s.Phase, s.Cause)
	}
}

// Processes continue on another host, after theirs is gone, if the snapshot fits there: together
// with the origin's output, every number is there once.
func TestProcessesContinueOnAnotherHost(t *testing.T) {
	one := withMemory(t)
	one.cfg.Name, one.cfg.CopyAhead = "node1", 0
	two := newHost(t, one, "node2", one.cfg.Drivers[0])
	for _, r := range []*rig{one, two} {
		r.begin()
		r.awaitLease(0)
	}
	first := one.sandbox()
	id := one.start(first, counts())
	one.awaitOutput(id, "\n5\n")
	snap := one.memorySnapshot(first)
	one.stopSandbox(first)
	one.awaitPhase(first, sandbox.PhaseDestroyed)
	origin := one.whole(id)
	snap = one.awaitCopy(snap.ID, copied)
	one.kill()

	moved := two.createFrom(&snap)
	p := process.IDOf(id.Token(), moved.ID)
	two.read(p, func(rec *processRecord) bool { return strings.Count(rec.upTo(1<<60), "\n") > 20 })
	if _, err := two.call(p, command.Signal{Signal: 15}); err != nil {
		t.Errorf("signal: %v", err)
	}
	rec := two.whole(p)
	all := origin.upTo(rec.from(t).After) + rec.upTo(1<<60)
	if n := wantCount(t, "moved", all); n < 20 || describe(rec.end()) != "exited 0" || !strings.HasSuffix(all, "end\n") {
		t.Errorf("%d lines, end %s", n, describe(rec.end()))
	}
}
