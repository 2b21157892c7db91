package hostd

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
)

// snapshot takes a snapshot and returns the log's entry.
func (r *rig) snapshot(sbx sandbox.ID) sandbox.Snapshot {
	r.t.Helper()
	id := sandbox.NewSnapshotID()
	if _, err := r.call(process.NewID(sbx), command.TakeSnapshot{ID: id, Name: "n"}); err != nil {
		r.t.Fatalf("snapshot: %v", err)
	}
	if err := r.view.Sync(r.ctx()); err != nil {
		r.t.Fatal(err)
	}
	s, ok := r.view.Snapshot(id)
	if !ok {
		r.t.Fatal("the log has no entry of a snapshot that was made")
	}
	return s
}

func (r *rig) forget(s sandbox.Snapshot) {
	r.t.Helper()
	s.Deleted = true
	if err := r.log.PutSnapshot(r.ctx(), &s); err != nil {
		r.t.Fatal(err)
	}
}

// kept returns the number of snapshots on the host's disk.
func (r *rig) kept() int {
	entries, err := os.ReadDir(filepath.Join(r.cfg.DataDir, snapshotDir))
	if err != nil {
		r.t.Fatal(err)
	}
	return len(entries)
}

// awaitKept waits until there are n snapshots on the disk. The host checks on every change of the
// log: a lease is renewed each second.
func (r *rig) awaitKept(n int) {
	r.t.Helper()
	changed, stop := r.view.Changes()
	defer stop()
	ctx := r.ctx()
	for r.kept() != n {
		select {
		case <-changed:
		case <-ctx.Done():
			r.t.Fatalf("%d snapshots are kept, want %d", r.kept(), n)
		}
	}
}

func (r *rig) write(sbx sandbox.ID, text string) {
	r.t.Helper()
	if rec := r.whole(r.start(sbx, sh("echo "+text+" > ~/file"))); describe(rec.end()) != "exited 0" {
		r.t.Fatalf("write: %s", describe(rec.end()))
	}
}

func (r *rig) createFrom(s *sandbox.Snapshot) sandbox.State {
	r.t.Helper()
	id := r.request(sandbox.Requested{Template: s.Template, Driver: s.Driver, Origin: sandbox.Origin{From: s.ID, FromSandbox: s.Sandbox, FromHost: s.Host}})
	return r.awaitPhase(id, sandbox.PhaseRunning)
}

// A sandbox created from a snapshot has the files of that moment; it outlives the snapshot's
// sandbox, and the deletion of the snapshot.
func TestSnapshot(t *testing.T) {
	r := newRunningRig(t)
	first := r.sandbox()
	if s, _ := r.view.Sandbox(first); !s.Can.Files {
		t.Skipf("driver %s keeps no files here", s.Driver)
	}
	r.write(first, "then")
	snap := r.snapshot(first)
	if snap.Sandbox != first || snap.Host != hostName || snap.Tenant != tenant || snap.Template != "base" || snap.Name != "n" || snap.Memory {
		t.Errorf("snapshot %+v", snap)
	}
	r.write(first, "now")
	r.stopSandbox(first)
	r.awaitPhase(first, sandbox.PhaseDestroyed)
	s := r.createFrom(&snap)
	if !s.IsRunning() || s.Request.From != snap.ID || s.Request.FromSandbox != first {
		t.Fatalf("sandbox from a snapshot: %+v", s)
	}
	if got := r.file(s.ID, "file"); got != "then\n" {
		t.Errorf("file has %q", got)
	}
	r.write(s.ID, "later")
	r.forget(snap)
	other := r.createFrom(&snap)
	if other.Phase != sandbox.PhaseFailed {
		t.Errorf("sandbox from a deleted snapshot: %s", other.Phase)
	}
	if got := r.file(s.ID, "file"); got != "later\n" || r.kept() != 1 {
		t.Errorf("after its snapshot was deleted, the file has %q; %d snapshots are kept", got, r.kept())
	}
	r.stopSandbox(s.ID)
	r.awaitPhase(s.ID, sandbox.PhaseDestroyed)
	r.awaitKept(0)
}

// A paused sandbox can have a snapshot, too, and is paused afterwards.
func TestSnapshotOfAPausedSandbox(t *testing.T) {
	r := newRunningRig(t)
	sbx, id := r.counting()
	r.write(sbx, "still")
	r.ask(sbx, sandbox.PhasePaused, sandbox.Pausing{})
	snap := r.snapshot(sbx)
	if !r.quiet(id) {
		t.Error("a snapshot resumed a paused sandbox")
	}
	if got := r.file(r.createFrom(&snap).ID, "file"); got != "still\n" {
		t.Errorf("file has %q", got)
	}
	r.ask(sbx, sandbox.PhaseRunning, sandbox.Resuming{})
	r.wantAll(id)
}

// An interrupted snapshot has no entry in the log and leaves no directory.
func TestInterruptedSnapshot(t *testing.T) {
	r := newRig(t)
	interrupted := r.beginInterrupted(interruptAt("snapshotted", 1))
	r.awaitLease(0)
	sbx := r.sandbox()
	if s, _ := r.view.Sandbox(sbx); !s.Can.Files {
		t.Skipf("driver %s keeps no files here", s.Driver)
	}
	id := r.start(sbx, sh("sleep 60"))
	c := newCommand(id, command.TakeSnapshot{ID: sandbox.NewSnapshotID()})
	if err := r.log.Send(r.ctx(), hostName, c); err != nil {
		t.Fatal(err)
	}
	if !interrupted() {
		t.Fatal("the host was never interrupted")
	}
	r.awaitLease(1)
	// The command is read again, and takes the same snapshot.
	if _, err := r.call(id, command.TakeSnapshot{ID: c.Body.(command.TakeSnapshot).ID}); err != nil {
		t.Errorf("second attempt: %v", err)
	}
	if n := r.kept(); n != 1 {
		t.Errorf("%d directories for one snapshot", n)
	}
	if _, err := r.call(id, command.Signal{Signal: 9}); err != nil {
		t.Errorf("the process did not continue: %v", err)
	}
	if _, err := r.call(process.NewID(sandbox.NewID()), command.TakeSnapshot{ID: sandbox.NewSnapshotID()}); !kind.Is(err, kind.NotFound) {
		t.Errorf("snapshot of a sandbox that does not exist: %v", err)
	}
}

// A host that drains is drained in its next run, too.
func TestDrain(t *testing.T) {
	r := newRunningRig(t)
	setDrain := func(drain bool) {
		t.Helper()
		c := command.Command{ID: string(process.NewID(sandbox.NewID())), Body: command.Drain{Drain: drain}}
		if _, err := r.log.Call(r.ctx(), hostName, c); err != nil {
			t.Fatal(err)
		}
	}
	await := func(epoch uint64, drain bool) {
		t.Helper()
		changed, stop := r.view.Changes()
		defer stop()
		ctx := r.ctx()
		for {
			if h, ok := r.view.Host(hostName); ok && h.Epoch == epoch && h.Draining == drain {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("epoch %d never had draining %v", epoch, drain)
			}
		}
	}
	sbx := r.sandbox()
	setDrain(true)
	await(1, true)
	if rec := r.whole(r.start(sbx, sh("echo still here"))); string(rec.out[process.Stdout]) != "still here\n" {
		t.Errorf("a sandbox of a draining host: %s", rec.types())
	}
	r.kill()
	if err := r.view.Sync(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if h, _ := r.view.Host(hostName); h.Starting {
		t.Error("the lease announces a next run")
	}
	r.begin()
	await(2, true)
	setDrain(false)
	await(2, false)
}

// upgraded is a driver that was replaced while its instances run.
type upgraded struct{ driver.Driver }

func (d upgraded) Probe(ctx context.Context) (driver.Caps, error) {
	caps, err := d.Driver.Probe(ctx)
	caps.Memory, caps.Fits, caps.FileFits = true, "build 2", "files"
	return caps, err
}

func (d upgraded) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	in, err := d.Driver.Create(ctx, s)
	return old{in}, err
}

type old struct{ driver.Instance }

func (old) Fits() string { return "build 1" }

func (o old) Snapshot(ctx context.Context, dir string, _ bool) error {
	return o.Instance.Snapshot(ctx, dir, false)
}

// The memory of a sandbox fits the build that the sandbox runs, whichever build new ones get.
func TestMemoryFitsTheBuildThatRuns(t *testing.T) {
	r := newRig(t)
	r.cfg.drivers = []driver.Driver{upgraded{direct.New(direct.Config{})}}
	r.begin()
	sbx := r.sandbox()
	for memory, want := range map[bool]string{true: "build 1, CPU ", false: "files on "} {
		id := sandbox.NewSnapshotID()
		if _, err := r.call(process.NewID(sbx), command.TakeSnapshot{ID: id, Memory: memory}); err != nil {
			t.Fatal(err)
		}
		if err := r.view.Sync(r.ctx()); err != nil {
			t.Fatal(err)
		}
		if s, ok := r.view.Snapshot(id); !ok || !strings.HasPrefix(s.Fits, want) {
			t.Errorf("snapshot with memory %v fits %q, want %q...", memory, s.Fits, want)
		}
	}
}

// large is a driver whose instances report large usage.
type large struct {
	upgraded
	has uint64
}

func (d large) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	in, err := d.upgraded.Create(ctx, s)
	return largeInstance{in, d.has}, err
}

type largeInstance struct {
	driver.Instance
	has uint64
}

func (p largeInstance) Stats(context.Context) (driver.Stats, error) {
	return driver.Stats{DiskBytes: p.has}, nil
}

// A snapshot with memory for which the disk has no space is refused before other sandboxes are
// evicted for it.
func TestSnapshotOfMemoryIsRefusedWithoutDiskSpace(t *testing.T) {
	r := newRig(t)
	r.cfg.drivers = []driver.Driver{large{upgraded{direct.New(direct.Config{})}, 1 << 50}}
	r.begin()
	sbx := r.sandbox()
	take := func(memory bool) error {
		_, err := r.call(process.NewID(sbx), command.TakeSnapshot{ID: sandbox.NewSnapshotID(), Memory: memory})
		return err
	}
	if err := take(true); !kind.Is(err, kind.Unavailable) || !strings.Contains(kind.Message(err), "no space") {
		t.Errorf("with memory: %v", err)
	}
	if err := take(false); err != nil {
		t.Errorf("without memory: %v", err)
	}
}

// ending is a driver whose instances are asked to end during a snapshot of their memory.
type ending struct {
	upgraded
	end func(sandbox.ID)
}

func (d ending) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	in, err := d.upgraded.Create(ctx, s)
	return endingInstance{in, func() { d.end(s.ID) }}, err
}

type endingInstance struct {
	driver.Instance
	end func()
}

func (p endingInstance) Snapshot(context.Context, string, bool) error {
	p.end()
	<-p.Done()
	return nil
}

// A snapshot with memory fails if its sandbox must end: the memory may have that request, and a
// sandbox created from it would end, too.
func TestNoSnapshotOfASandboxThatMustEnd(t *testing.T) {
	r := newRig(t)
	r.cfg.drivers = []driver.Driver{ending{upgraded{direct.New(direct.Config{})}, r.stopSandbox}}
	r.begin()
	id := sandbox.NewSnapshotID()
	if _, err := r.call(process.NewID(r.sandbox()), command.TakeSnapshot{ID: id, Memory: true}); !kind.Is(err, kind.NotFound) {
		t.Errorf("got %v", err)
	}
	if err := r.view.Sync(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if s, ok := r.view.Snapshot(id); ok || r.kept() != 0 {
		t.Errorf("snapshot %+v, %d directories kept", s, r.kept())
	}
}
