package hostd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
)

// snapshot has the host make one and gives it as the log knows it.
func (r *rig) snapshot(sbx sandbox.ID) sandbox.Snapshot {
	r.t.Helper()
	id := sandbox.NewSnapshotID()
	if _, err := r.call(process.NewID(sbx), events.TakeSnapshot{ID: id, Name: "n"}); err != nil {
		r.t.Fatalf("snapshot: %v", err)
	}
	if err := r.view.Sync(r.ctx()); err != nil {
		r.t.Fatal(err)
	}
	s, ok := r.view.Snapshot(id)
	if !ok {
		r.t.Fatal("a snapshot that was made is not known")
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

// kept are the snapshots on the host's disk.
func (r *rig) kept() int {
	entries, err := os.ReadDir(filepath.Join(r.cfg.DataDir, snapshotDir))
	if err != nil {
		r.t.Fatal(err)
	}
	return len(entries)
}

// awaitKept waits for so many snapshots on the disk. Every change of the log has
// the host look: a lease comes each second.
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

func (r *rig) begunFrom(s *sandbox.Snapshot) sandbox.State {
	r.t.Helper()
	id := r.request(sandbox.Requested{Template: s.Template, Driver: s.Driver, From: s.ID, FromSandbox: s.Sandbox, FromHost: s.Host})
	return r.awaitPhase(id, sandbox.PhaseRunning)
}

// A sandbox that begins from a snapshot has the files of that moment; it outlives
// the sandbox that the snapshot was made of, and the deletion of the snapshot.
func TestSnapshot(t *testing.T) {
	r := lively(t)
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
	s := r.begunFrom(&snap)
	if !s.Live() || s.Request.From != snap.ID || s.Request.FromSandbox != first {
		t.Fatalf("begun from a snapshot: %+v", s)
	}
	if got := r.file(s.ID, "file"); got != "then\n" {
		t.Errorf("the file says %q", got)
	}
	r.write(s.ID, "later")
	r.forget(snap)
	other := r.begunFrom(&snap)
	if other.Phase != sandbox.PhaseFailed {
		t.Errorf("begun from a snapshot that was deleted: %s", other.Phase)
	}
	if got := r.file(s.ID, "file"); got != "later\n" || r.kept() != 1 {
		t.Errorf("after its snapshot was deleted, the file says %q; %d snapshots are kept", got, r.kept())
	}
	r.stopSandbox(s.ID)
	r.awaitPhase(s.ID, sandbox.PhaseDestroyed)
	r.awaitKept(0)
}

// A paused sandbox can be kept too, and is paused afterwards.
func TestSnapshotOfAPausedSandbox(t *testing.T) {
	r := lively(t)
	sbx, id := r.counting()
	r.write(sbx, "still")
	r.ask(sbx, sandbox.PhasePaused, sandbox.Pausing{})
	snap := r.snapshot(sbx)
	if !r.quiet(id) {
		t.Error("a snapshot woke a paused sandbox")
	}
	if got := r.file(r.begunFrom(&snap).ID, "file"); got != "still\n" {
		t.Errorf("the file says %q", got)
	}
	r.ask(sbx, sandbox.PhaseRunning, sandbox.Resuming{})
	r.wantAll(id)
}

// A snapshot that the host was cut off in is not known, and not left.
func TestSnapshotCutOff(t *testing.T) {
	r := newRig(t)
	cut := r.lives(cutAt("snapshotted", 1))
	r.awaitLease(0)
	sbx := r.sandbox()
	if s, _ := r.view.Sandbox(sbx); !s.Can.Files {
		t.Skipf("driver %s keeps no files here", s.Driver)
	}
	id := r.start(sbx, sh("sleep 60"))
	c := command(id, events.TakeSnapshot{ID: sandbox.NewSnapshotID()})
	if err := r.log.Send(r.ctx(), hostName, c); err != nil {
		t.Fatal(err)
	}
	if !cut() {
		t.Fatal("it was never cut off")
	}
	r.awaitLease(1)
	// The command is read again, and makes the same snapshot.
	if _, err := r.call(id, events.TakeSnapshot{ID: c.Body.(events.TakeSnapshot).ID}); err != nil {
		t.Errorf("again: %v", err)
	}
	if n := r.kept(); n != 1 {
		t.Errorf("%d directories of one snapshot", n)
	}
	if _, err := r.call(id, events.Signal{Signal: 9}); err != nil {
		t.Errorf("the process did not go on: %v", err)
	}
	if _, err := r.call(process.NewID(sandbox.NewID()), events.TakeSnapshot{ID: sandbox.NewSnapshotID()}); !kind.Is(err, kind.NotFound) {
		t.Errorf("a snapshot of nothing: %v", err)
	}
}

// What a host was told about draining holds for its next life.
func TestDrain(t *testing.T) {
	r := lively(t)
	tell := func(drain bool) {
		t.Helper()
		c := events.Command{ID: string(process.NewID(sandbox.NewID())), Body: events.Drain{Drain: drain}}
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
				t.Fatalf("epoch %d never has draining %v", epoch, drain)
			}
		}
	}
	sbx := r.sandbox()
	tell(true)
	await(1, true)
	if rec := r.whole(r.start(sbx, sh("echo goes on"))); string(rec.out[process.Stdout]) != "goes on\n" {
		t.Errorf("a sandbox of a draining host: %s", rec.types())
	}
	r.kill()
	if err := r.view.Sync(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if h, _ := r.view.Host(hostName); h.Starting {
		t.Error("its next life is waited for")
	}
	r.begin()
	await(2, true)
	tell(false)
	await(2, false)
}

// upgraded is a driver that was replaced while its places run.
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

// The memory of a sandbox is for the build that the sandbox runs, whatever others are
// made with now.
func TestMemoryFitsTheBuildThatRuns(t *testing.T) {
	r := newRig(t)
	r.cfg.drivers = []driver.Driver{upgraded{direct.New(direct.Config{})}}
	r.begin()
	box := r.sandbox()
	for memory, want := range map[bool]string{true: "build 1, CPU ", false: "files on "} {
		id := sandbox.NewSnapshotID()
		if _, err := r.call(process.NewID(box), events.TakeSnapshot{ID: id, Memory: memory}); err != nil {
			t.Fatal(err)
		}
		if err := r.view.Sync(r.ctx()); err != nil {
			t.Fatal(err)
		}
		if s, ok := r.view.Snapshot(id); !ok || !strings.HasPrefix(s.Fits, want) {
			t.Errorf("with memory %v it fits %q, want %q...", memory, s.Fits, want)
		}
	}
}

// large is a driver whose places have much to be kept, by its count.
type large struct {
	upgraded
	has uint64
}

func (d large) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	in, err := d.upgraded.Create(ctx, s)
	return largePlace{in, d.has}, err
}

type largePlace struct {
	driver.Instance
	has uint64
}

func (p largePlace) Stats(context.Context) (driver.Stats, error) {
	return driver.Stats{DiskBytes: p.has}, nil
}

// A snapshot with the memory that the disk has no room for is refused before others are ended
// for it.
func TestNoRoomForMemory(t *testing.T) {
	r := newRig(t)
	r.cfg.drivers = []driver.Driver{large{upgraded{direct.New(direct.Config{})}, 1 << 50}}
	r.begin()
	box := r.sandbox()
	take := func(memory bool) error {
		_, err := r.call(process.NewID(box), events.TakeSnapshot{ID: sandbox.NewSnapshotID(), Memory: memory})
		return err
	}
	if err := take(true); !kind.Is(err, kind.Unavailable) || !strings.Contains(kind.Message(err), "no room") {
		t.Errorf("with the memory: %v", err)
	}
	if err := take(false); err != nil {
		t.Errorf("without: %v", err)
	}
}

// What one snapshot may still take is no other's.
func TestRoomIsClaimedOnce(t *testing.T) {
	h := &host{}
	h.cfg.DataDir = t.TempDir()
	var err error
	if h.templates, err = openTemplates(&h.cfg); err != nil {
		t.Fatal(err)
	}
	d := room(h.cfg.DataDir)
	if d.free < 10*d.spare() {
		t.Skip("the disk is not known, or full")
	}
	b := bare(h)
	b.inst = largePlace{has: d.free / 3 * 2}
	made, err := b.claimRoom(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.claimRoom(t.Context()); !kind.Is(err, kind.Unavailable) {
		t.Errorf("as much once more: %v", err)
	}
	made()
	if made, err = b.claimRoom(t.Context()); err != nil {
		t.Errorf("when the first is made: %v", err)
	} else {
		made()
	}
}

// full is a place on a disk without room.
type full struct{ driver.Instance }

func (full) Snapshot(context.Context, string, bool) error {
	return fmt.Errorf("keep it: %w", syscall.ENOSPC)
}

// That the disk has become full is said.
func TestSnapshotOnAFullDisk(t *testing.T) {
	b := bare(&host{})
	b.inst = full{}
	err := b.fill(t.Context(), filepath.Join(t.TempDir(), "snapshot"), &events.TakeSnapshot{Memory: true})
	if !kind.Is(err, kind.Unavailable) || !strings.Contains(kind.Message(err), "is full") {
		t.Errorf("%v, %q", err, kind.Message(err))
	}
}

// ending is a driver whose places are asked to end while their memory is kept.
type ending struct {
	upgraded
	end func(sandbox.ID)
}

func (d ending) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	in, err := d.upgraded.Create(ctx, s)
	return endingPlace{in, func() { d.end(s.ID) }}, err
}

type endingPlace struct {
	driver.Instance
	end func()
}

func (p endingPlace) Snapshot(context.Context, string, bool) error {
	p.end()
	<-p.Done()
	return nil
}

// What has the word in its memory that it is to end, as what begins from it would, is no
// snapshot.
func TestNoSnapshotOfWhoIsToEnd(t *testing.T) {
	r := newRig(t)
	r.cfg.drivers = []driver.Driver{ending{upgraded{direct.New(direct.Config{})}, r.stopSandbox}}
	r.begin()
	id := sandbox.NewSnapshotID()
	if _, err := r.call(process.NewID(r.sandbox()), events.TakeSnapshot{ID: id, Memory: true}); !kind.Is(err, kind.NotFound) {
		t.Errorf("got %v", err)
	}
	if err := r.view.Sync(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if s, ok := r.view.Snapshot(id); ok || r.kept() != 0 {
		t.Errorf("there is %+v, and %d are kept", s, r.kept())
	}
}
