package builder

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
)

// unusedLayers is more than the number of unused layers that a tenant keeps.
const unusedLayers = 65

// storeLayer stores a layer with a sum.
func (f *fixture) storeLayer(sum string) sandbox.Snapshot {
	f.t.Helper()
	s := sandbox.Snapshot{
		ID: sandbox.NewSnapshotID(), Tenant: f.principal.Tenant, Host: f.host.Name, Template: template.Base, Internal: true, Layer: sum, Taken: time.Now(),
	}
	if err := f.log.PutSnapshot(f.t.Context(), &s); err != nil {
		f.t.Fatal(err)
	}
	return s
}

// fill stores more newer layers than are kept unused.
func (f *fixture) fill() {
	f.t.Helper()
	for range unusedLayers {
		f.storeLayer("another")
	}
	if err := f.Core.Sync(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// prune drops unused layers.
func (f *fixture) prune() {
	f.t.Helper()
	f.fill()
	if err := f.Templates.PruneLayers(f.t.Context(), f.principal); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) has(id sandbox.SnapshotID) bool {
	f.t.Helper()
	if err := f.Core.Sync(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	_, ok := f.Snapshots.LayerOf(id)
	return ok
}

// drop drops a layer, even if it is in use.
func (f *fixture) drop(id sandbox.SnapshotID) {
	f.t.Helper()
	if !f.has(id) {
		f.t.Fatal("the layer does not exist")
	}
	err := f.view.Sync(f.t.Context())
	if err == nil {
		_, err = f.view.ChangeSnapshot(f.t.Context(), id, func(s *sandbox.Snapshot) bool { s.Deleted = true; return true })
	}
	if err != nil || f.has(id) {
		f.t.Fatal("the layer was not dropped", err)
	}
}

func runLayer(step int, sum string) layer {
	return layer{step: step, sum: sum, do: &build.Step{Type: build.Run, Args: []string{"true"}}}
}

// The base of a build is kept until the build has another, or ends.
func TestLayerInUseIsKept(t *testing.T) {
	f := newFixture(t, "", "")
	f.host.Start()
	r := f.newRun()
	cached := f.storeLayer("one")
	if !f.has(cached.ID) {
		t.Fatal("the layer does not exist")
	}
	from, first, second := f.from, runLayer(1, "one"), runLayer(2, "two")
	from, err := r.layers.layer(t.Context(), from, &first)
	if err != nil || from.snap.ID != cached.ID {
		t.Fatalf("layer %s, %v; want %s", from.snap.ID, err, cached.ID)
	}
	if f.prune(); !f.has(cached.ID) {
		t.Fatal("the reused layer was dropped")
	}
	made, err := r.layers.layer(t.Context(), from, &second)
	if err != nil {
		t.Fatal(err)
	}
	if f.prune(); !f.has(made.snap.ID) {
		t.Error("the new layer was dropped")
	}
	if err := r.record.append(t.Context(), build.Failed{}); err != nil {
		t.Fatal(err)
	}
	if f.prune(); f.has(cached.ID) || f.has(made.snap.ID) {
		t.Error("the layers outlive the build")
	}
}

// Whichever comes first, the layer that a build continues with exists.
func TestReuseDuringPrune(t *testing.T) {
	f := newFixture(t, "", "")
	f.host.Start()
	other, _, _ := newRunsOn(t, f.log) // the operations of another gateway
	r := f.newRun()
	for round := range 10 {
		sum := strconv.Itoa(round)
		l := runLayer(round+1, sum)
		f.storeLayer(sum)
		f.fill()
		var pruned, made error
		var on origin
		var wg sync.WaitGroup
		wg.Go(func() { pruned = other.Templates.PruneLayers(t.Context(), f.principal) })
		wg.Go(func() { on, made = r.layers.layer(t.Context(), f.from, &l) })
		wg.Wait()
		if pruned != nil || made != nil || !f.has(on.snap.ID) {
			t.Errorf("round %d: layer %q exists: %v; %v, %v", round, on.snap.ID, f.has(on.snap.ID), made, pruned)
		}
	}
}

// A build that no gateway ran for a while may have lost its layers.
func TestDroppedLayerIsBuiltAgain(t *testing.T) {
	f := newFixture(t, "", "")
	f.host.Start()
	r := f.newRun()
	for n := range 2 {
		l := runLayer(1, "one")
		on, err := r.layers.layer(t.Context(), f.from, &l)
		if err != nil || !f.has(on.snap.ID) {
			t.Fatalf("made %d times: %v", n, err)
		}
		f.drop(on.snap.ID)
	}
}

// The successor of a build does not need the layers below the newest.
func TestTakeoverContinuesWithNewestLayer(t *testing.T) {
	f := newFixture(t, "", "")
	f.host.Start()
	layers := []layer{runLayer(1, "one"), runLayer(2, "two"), runLayer(3, "three")}
	below, newest := f.storeLayer("one"), f.storeLayer("two")
	if !f.has(below.ID) || !f.has(newest.ID) {
		t.Fatal("the layers do not exist")
	}
	r, from := f.newRun(), f.from
	for i := range 2 {
		var err error
		if from, err = r.layers.layer(t.Context(), from, &layers[i]); err != nil {
			t.Fatal(err)
		}
	}
	f.drop(below.ID)
	got, n, err := f.newRun().layers.newestLayer(t.Context(), f.from, layers)
	if err != nil || n != 2 || got.snap.ID != newest.ID {
		t.Errorf("continues after %d steps with %q, %v; want 2 with %s", n, got.snap.ID, err, newest.ID)
	}
}

// If a base's files are dropped before the build claims them, the name is resolved again.
func TestDroppedBaseIsResolvedAgain(t *testing.T) {
	f := newFixture(t, "", "")
	f.host.Start()
	gone, now := f.storeLayer("old").ID, f.storeLayer("new").ID
	b := &template.Built{ID: template.BuiltID(f.principal.Tenant, "below"), Build: string(build.NewID()), Base: template.Base, Snapshot: string(now)}
	if err := f.Templates.TagBuilt(t.Context(), f.principal, "below", []string{"default"}, b); err != nil {
		t.Fatal(err)
	}
	f.drop(gone)
	s := startBuild(t, f.Operations, f.principal, build.Spec{Template: "below"})
	if err := f.next(s).record.append(t.Context(), build.Based{Template: template.Base, Snapshot: string(gone)}); err != nil {
		t.Fatal(err)
	}
	r := f.next(reload(t, f.Operations, f.principal, &s))
	if on, err := r.resolver.base(t.Context()); err != nil || on.snap.ID != now || r.record.current().Base.Snapshot != string(now) {
		t.Errorf("base %q, %v; want %s", on.snap.ID, err, now)
	}
}

// A mark with layers survives encoding.
func TestMarkKeepsLayers(t *testing.T) {
	f := newFixture(t, "", "")
	r := f.newRun()
	want := []string{"one", "two"}
	if err := r.record.log(t.Context(), build.Mark{Step: 1, Layers: want}); err != nil {
		t.Fatal(err)
	}
	if err := f.Core.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := f.Builds.List(f.principal, func(b *catalog.Build) bool { return b.ID == f.state.ID })
	if len(b) != 1 || fmt.Sprint(b[0].Mark.Layers) != fmt.Sprint(want) {
		t.Errorf("got %+v", b)
	}
}

// If the layer of a step is gone, its command's output is read from the beginning, however far
// the build had come.
func TestRepeatedStepIsReadFromTheStart(t *testing.T) {
	f := newFixture(t, "", "")
	f.host.Start()
	r := f.newRun()
	if err := r.record.log(t.Context(), build.Mark{Step: 2, After: 4, PartialOut: []byte("of another ")}); err != nil {
		t.Fatal(err)
	}
	was := r.record.current().Lines
	l := layer{step: 1, sum: "one", do: &build.Step{Type: build.Run, Args: []string{"echo a b"}}}
	if _, err := r.layers.layer(t.Context(), f.from, &l); err != nil || r.record.current().Lines != was+2 || r.record.mark().Step != 1 {
		t.Errorf("%v, %d more lines, step %d", err, r.record.current().Lines-was, r.record.mark().Step)
	}
}

// A build's claim is renewed while its steps read its state.
func TestConcurrentAppendAndRead(t *testing.T) {
	f := newFixture(t, "", "")
	r := f.newRun()
	var held error
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20 {
			if held = r.record.append(t.Context(), build.Claimed{By: "a run"}); held != nil {
				return
			}
		}
	})
	for range 200 {
		if req := r.layers.requested(f.from, settings{}); req.Build != string(f.state.ID) || r.layers.key("sandbox", 1) == "" {
			t.Errorf("request is for build %q", req.Build)
		}
	}
	if wg.Wait(); held != nil {
		t.Error(held)
	}
}
