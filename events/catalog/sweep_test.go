package catalog_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// Old records of ended sandboxes are removed. A sandbox that has not ended keeps its whole
// record, however old.
func TestRecordsOfActiveSandboxesAreKept(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	view := eventstest.View(t, log)
	record := func(bodies ...sandbox.Body) sandbox.ID { return sandboxRecord(t, view, bodies...) }
	forgotten := record(sandbox.Running{}, sandbox.Lost{})
	active := record(sandbox.Running{}, sandbox.NetworkUsed{Sent: 1}, sandbox.NetworkUsed{Sent: 2})
	paused := record(sandbox.Running{}, sandbox.Pausing{}, sandbox.Paused{})
	view.Forget(time.Now().Add(time.Hour))
	over := record(sandbox.Failed{})
	last := record(sandbox.Failed{}) // marks how far readers must read
	sweeps(t, view, time.Hour, 0)
	for _, want := range []int{0, 2, 0} {
		sweeps(t, view, 0, want)
	}
	next := eventstest.View(t, log)
	for id, want := range map[sandbox.ID]sandbox.Phase{active: sandbox.PhaseRunning, paused: sandbox.PhasePaused} {
		if s, _ := next.Sandbox(id); s.Phase != want || s.Host != "h" {
			t.Errorf("the sandbox in phase %s has phase %q on host %q", want, s.Phase, s.Host)
		}
	}
	for _, id := range []sandbox.ID{forgotten, over} {
		if s, ok := next.Sandbox(id); ok {
			t.Errorf("an ended sandbox has phase %q", s.Phase)
		}
	}
	if _, ok := next.Sandbox(last); !ok {
		t.Error("the stream's last record was removed")
	}
}

// sandboxRecord creates a sandbox, places it, appends bodies, and returns its id.
func sandboxRecord(t *testing.T, view *catalog.View, bodies ...sandbox.Body) sandbox.ID {
	t.Helper()
	id := sandbox.NewID()
	if _, err := view.CreateSandbox(t.Context(), "t", id, sandbox.Requested{}); err != nil {
		t.Fatal(err)
	}
	for _, b := range append([]sandbox.Body{sandbox.Placed{Host: "h", Epoch: 1}}, bodies...) {
		appendTo(t, view, id, b)
	}
	return id
}

// appendTo appends to a sandbox's record.
func appendTo(t *testing.T, view *catalog.View, id sandbox.ID, b sandbox.Body) {
	t.Helper()
	if _, err := view.ChangeSandbox(t.Context(), id, func(sandbox.State) ([]sandbox.Body, error) { return []sandbox.Body{b}, nil }); err != nil {
		t.Fatal(err)
	}
}

// sweeps sweeps records older than age, and checks how many are removed.
func sweeps(t *testing.T, view *catalog.View, age time.Duration, want int) {
	t.Helper()
	if n, err := view.SweepSandboxesOlder(t.Context(), age); n != want || err != nil {
		t.Errorf("older than %v: %d records removed, %v; want %d", age, n, err, want)
	}
}

// A record is as old as its end, however old its beginning.
func TestRecordsThatEndedLatelyAreKept(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	view := eventstest.View(t, log)
	id := sandboxRecord(t, view, sandbox.Running{})
	sweeps(t, view, 0, 0)
	appendTo(t, view, id, sandbox.Lost{})
	sandboxRecord(t, view) // the stream's last record stays in any case
	for range 2 {
		sweeps(t, view, time.Hour, 0)
	}
	if s, _ := eventstest.View(t, log).Sandbox(id); s.Phase != sandbox.PhaseLost || s.Host != "h" {
		t.Errorf("a sandbox that just ended has phase %q on host %q", s.Phase, s.Host)
	}
}

// A view opened while a record is being removed does not have its sandbox, and can remove
// the rest.
func TestAPartlyRemovedRecordIsInvisible(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	view := eventstest.View(t, log)
	over := sandboxRecord(t, view, sandbox.Running{}, sandbox.Lost{})
	sandboxRecord(t, view)
	sweeps(t, view, 0, 0)
	if s, _ := view.Sandbox(over); s.Phase != sandbox.PhaseLost {
		t.Errorf("the old view has it in phase %q", s.Phase)
	}
	next := eventstest.View(t, log)
	if s, ok := next.Sandbox(over); ok {
		t.Errorf("the new view has it in phase %q", s.Phase)
	}
	sweeps(t, next, 0, 0)
	sweeps(t, next, 0, 1)
}

// Several reapers may sweep concurrently.
func TestSeveralReapersMaySweep(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	one, other := eventstest.View(t, log), eventstest.View(t, log)
	sandboxRecord(t, one, sandbox.Failed{})
	sandboxRecord(t, one)
	sweeps(t, one, 0, 0)
	sweeps(t, other, 0, 0)
	sweeps(t, other, 0, 1)
	sweeps(t, one, 0, 0)
}

// Old messages of active sandboxes are read by one sweep only.
func TestOldMessagesAreReadOnce(t *testing.T) {
	srv := eventstest.Start(t)
	view := eventstest.View(t, eventstest.Open(t, srv))
	sandboxRecord(t, view, sandbox.Running{}, sandbox.NetworkUsed{Sent: 1})
	asked := spy(t, srv)
	for try, want := range []int{5, 1} { // the last read finds nothing
		sweeps(t, view, 0, 0)
		reads := 0
		for _, m := range asked() {
			if bytes.Contains(m.Data, []byte(`"next_by_subj":"sbx.`)) {
				reads++
			}
		}
		if reads != want {
			t.Errorf("sweep %d reads %d messages, want %d", try, reads, want)
		}
	}
}

// An age limit would remove records of running sandboxes.
func TestRecordsOfSandboxesHaveNoAgeLimit(t *testing.T) {
	srv := eventstest.Start(t)
	eventstest.Open(t, srv)
	if age := eventstest.Stream(t, srv, "SBX").CachedInfo().Config.MaxAge; age != 0 {
		t.Errorf("kept for %v", age)
	}
}

// Old records of deleted snapshots are removed, except those on which a sandbox is based. A
// view drops them, too, and the number of deletions never shrinks.
func TestRecordsOfDeletedSnapshotsAreRemoved(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	view := eventstest.View(t, log)
	snapshot := func(deleted bool) sandbox.SnapshotID {
		s := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Tenant: "t", Host: "h", Taken: time.Now()}
		if err := log.PutSnapshot(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
		if _, err := view.AwaitSnapshot(t.Context(), s.ID, func(s *sandbox.Snapshot) bool { return s.Rev > 0 }); err != nil {
			t.Fatal(err)
		}
		_, err := view.ChangeSnapshot(t.Context(), s.ID, func(s *sandbox.Snapshot) bool { s.Deleted = deleted; return deleted })
		if err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	kept, base, gone, also := snapshot(false), snapshot(true), snapshot(true), snapshot(true)
	last := snapshot(true)
	if _, err := view.CreateSandbox(t.Context(), "t", sandbox.NewID(), sandbox.Requested{Origin: sandbox.Origin{From: base}}); err != nil {
		t.Fatal(err)
	}
	deletions := view.Deletions()
	view.Forget(time.Now().Add(7 * 24 * time.Hour)) // the sweeping view may have dropped them
	for i, tt := range []struct {
		age  time.Duration
		want int
	}{{time.Hour, 0}, {0, 0}, {0, 2}} {
		if n, err := view.SweepSnapshotsOlder(t.Context(), tt.age); n != tt.want || err != nil {
			t.Errorf("sweep %d: %d records removed, %v; want %d", i, n, err, tt.want)
		}
	}
	next := eventstest.View(t, log)
	for _, tt := range []struct {
		name      string
		id        sandbox.SnapshotID
		has, next bool // the old view, and a new one
	}{
		{"not deleted", kept, true, true}, {"base of a sandbox", base, true, true},
		{"deleted", gone, false, false}, {"another deleted one", also, false, false}, {"the stream's last", last, false, true},
	} {
		_, has := view.Snapshot(tt.id)
		if _, ok := next.Snapshot(tt.id); has != tt.has || ok != tt.next {
			t.Errorf("%s: %t, %t", tt.name, has, ok)
		}
	}
	if now := view.Deletions(); now != 4 || now != deletions {
		t.Errorf("%d deletions, then %d; want 4", deletions, now)
	}
}

// A view that was disconnected while a snapshot was deleted, and its record removed,
// detects that when the snapshot is changed.
func TestAViewDetectsASnapshotRemovedWhileDisconnected(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	s := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Tenant: "t", Host: "h", Taken: time.Now()}
	if err := log.PutSnapshot(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	view := eventstest.View(t, log)
	stream, err := eventstest.JetStream(t, srv).Stream(t.Context(), "SNAP")
	if err == nil {
		err = stream.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = view.ChangeSnapshot(t.Context(), s.ID, func(s *sandbox.Snapshot) bool { s.Deleted = true; return true })
	if !kind.Is(err, kind.NotFound) {
		t.Errorf("got %v", err)
	}
	if _, ok := view.Snapshot(s.ID); ok {
		t.Error("the view still has it")
	}
}

// named are the operations on volumes or secrets, whose names can be reused.
type named struct {
	make  func(name string) error
	end   func(name string) error
	has   func(*catalog.View, string) bool
	sweep func(*catalog.View, context.Context, time.Duration) (int, error)
}

func namedKinds(t *testing.T, log *events.Log, view *catalog.View) map[string]named {
	at := func(name string) sandbox.Volume { v, _ := view.NamedVolume("t", name); return v }
	secret := func(name string) catalog.Secret { s, _ := view.TenantSecret("t", name); return s }
	return map[string]named{
		"volumes": {
			func(name string) error {
				return log.NewVolume(t.Context(), &sandbox.Volume{ID: sandbox.NewVolumeID(), Tenant: "t", Name: name, Host: "h", Created: time.Now()})
			},
			func(name string) error { v := at(name); v.Deleted = true; return log.PutVolume(t.Context(), &v) },
			func(view *catalog.View, name string) bool { _, ok := view.NamedVolume("t", name); return ok },
			(*catalog.View).SweepVolumesOlder,
		},
		"secrets": {
			func(name string) error {
				return log.NewSecret(t.Context(), &catalog.Secret{ID: name, Tenant: "t", Name: name, Version: 1, Created: time.Now()})
			},
			func(name string) error { s := secret(name); s.Removed = true; return log.PutSecret(t.Context(), &s) },
			func(view *catalog.View, name string) bool { _, ok := view.TenantSecret("t", name); return ok },
			(*catalog.View).SweepSecretsOlder,
		},
	}
}

// Old records of deleted volumes and secrets are removed. Their names can be reused at any
// time: while a view has them, after it dropped them, and after the record is gone.
func TestRecordsOfDeletedNamesAreRemoved(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	view := eventstest.View(t, log)
	for what, k := range namedKinds(t, log, view) {
		must := func(err error) {
			t.Helper()
			if err == nil {
				err = view.Sync(t.Context())
			}
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		for _, name := range []string{"kept", "gone", "also", "last"} {
			must(k.make(name))
		}
		if err := k.make("kept"); !kind.Is(err, kind.Conflict) {
			t.Errorf("%s: a name that is taken: %v", what, err)
		}
		for _, name := range []string{"gone", "also"} {
			must(k.end(name))
			must(k.make(name)) // although the view has the end
			must(k.end(name))
		}
		must(k.end("last"))
		view.Forget(time.Now().Add(7 * 24 * time.Hour))
		if !k.has(view, "kept") || k.has(view, "gone") {
			t.Errorf("%s: the view dropped the wrong one", what)
		}
		must(k.make("also")) // the log still has the end
		for i, tt := range []struct {
			age  time.Duration
			want int
		}{{time.Hour, 0}, {0, 0}, {0, 1}} {
			if n, err := k.sweep(view, t.Context(), tt.age); i < 2 && n != 0 || err != nil {
				t.Errorf("%s: sweep %d: %d records removed, %v; want %d", what, i, n, err, tt.want)
			}
		}
		next := eventstest.View(t, log)
		for name, want := range map[string]bool{"kept": true, "also": true, "gone": false} {
			if k.has(next, name) != want {
				t.Errorf("%s: a new view has %s: %t", what, name, !want)
			}
		}
		must(k.make("gone"))
		must(k.end("gone"))
	}
}

// Names that are reused while their old records are removed stay.
func TestNamesReusedDuringASweepStay(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	view := eventstest.View(t, log)
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	volumes := func(deleted bool, names ...string) error {
		for _, name := range names {
			v := sandbox.Volume{ID: sandbox.NewVolumeID(), Tenant: "t", Name: name, Host: "h", Created: time.Now(), Deleted: deleted}
			if err := log.NewVolume(t.Context(), &v); err != nil {
				return err
			}
		}
		return nil
	}
	const age = 300 * time.Millisecond // longer than the creation takes
	sweep := func() error { _, err := view.SweepVolumesOlder(t.Context(), age); return err }
	if err := volumes(true, append(names, "last")...); err != nil { // a stream's last record stays anyway
		t.Fatal(err)
	}
	<-time.After(age)
	if err := sweep(); err != nil {
		t.Fatal(err)
	}
	again := slices.Clone(names)
	rand.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
	var all errgroup.Group
	all.Go(sweep)
	all.Go(func() error { return volumes(false, again...) })
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	next := eventstest.View(t, log)
	for _, name := range names {
		if _, ok := next.NamedVolume("t", name); !ok {
			t.Errorf("%s is gone", name)
		}
	}
}
