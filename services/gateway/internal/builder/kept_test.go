package builder

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
)

// spares are more layers than a tenant keeps for nothing.
const spares = 65

// put has a layer that was made before by a sum.
func (f *final) put(sum string) sandbox.Snapshot {
	f.t.Helper()
	s := sandbox.Snapshot{
		ID: sandbox.NewSnapshotID(), Tenant: f.who.Tenant, Host: f.host.Name, Template: template.Base, Internal: true, Layer: sum, Taken: time.Now(),
	}
	if err := f.log.PutSnapshot(f.t.Context(), &s); err != nil {
		f.t.Fatal(err)
	}
	return s
}

// fill has more newer layers than are kept for nothing.
func (f *final) fill() {
	f.t.Helper()
	for range spares {
		f.put("another")
	}
	if err := f.Sync(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// prune drops layers.
func (f *final) prune() {
	f.t.Helper()
	f.fill()
	if err := f.PruneLayers(f.t.Context(), f.who); err != nil {
		f.t.Fatal(err)
	}
}

func (f *final) has(id sandbox.SnapshotID) bool {
	f.t.Helper()
	if err := f.Sync(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	_, ok := f.LayerOf(id)
	return ok
}

// drop drops a layer whatever stands on it.
func (f *final) drop(id sandbox.SnapshotID) {
	f.t.Helper()
	if !f.has(id) {
		f.t.Fatal("it was not there")
	}
	err := f.view.Sync(f.t.Context())
	if err == nil {
		_, err = f.view.ChangeSnapshot(f.t.Context(), id, func(s *sandbox.Snapshot) bool { s.Deleted = true; return true })
	}
	if err != nil || f.has(id) {
		f.t.Fatal("it is left", err)
	}
}

func runs(step int, sum string) layer {
	return layer{step: step, sum: sum, do: &build.Step{Type: build.Run, Args: []string{"true"}}}
}

// What a build stands on stays until it stands on something else, or ends.
func TestALayerThatWasPickedStays(t *testing.T) {
	f := newFinal(t, "", "")
	f.host.Start()
	r := f.life()
	cached := f.put("one")
	if !f.has(cached.ID) {
		t.Fatal("it is not there")
	}
	from, first, second := f.from, runs(1, "one"), runs(2, "two")
	from, err := r.layer(t.Context(), from, &first)
	if err != nil || from.snap.ID != cached.ID {
		t.Fatalf("it stands on %s, %v; want %s", from.snap.ID, err, cached.ID)
	}
	if f.prune(); !f.has(cached.ID) {
		t.Fatal("what it picked was dropped")
	}
	made, err := r.layer(t.Context(), from, &second)
	if err != nil {
		t.Fatal(err)
	}
	if f.prune(); !f.has(made.snap.ID) {
		t.Error("what it made was dropped")
	}
	if err := r.append(t.Context(), build.Failed{}); err != nil {
		t.Fatal(err)
	}
	if f.prune(); f.has(cached.ID) || f.has(made.snap.ID) {
		t.Error("they outlive the build")
	}
}

// Whatever comes first, a build has the layer that it goes on with.
func TestALayerIsPickedWhileLayersAreDropped(t *testing.T) {
	f := newFinal(t, "", "")
	f.host.Start()
	other, _, _ := livesOn(t, f.log) // the core of another gateway
	r := f.life()
	for round := range 10 {
		sum := strconv.Itoa(round)
		l := runs(round+1, sum)
		f.put(sum)
		f.fill()
		var pruned, made error
		var on origin
		var wg sync.WaitGroup
		wg.Go(func() { pruned = other.PruneLayers(t.Context(), f.who) })
		wg.Go(func() { on, made = r.layer(t.Context(), f.from, &l) })
		wg.Wait()
		if pruned != nil || made != nil || !f.has(on.snap.ID) {
			t.Errorf("round %d: it stands on %q, which is there: %v; %v, %v", round, on.snap.ID, f.has(on.snap.ID), made, pruned)
		}
	}
}

// A build that nobody did for a while may have lost what it had made.
func TestALayerThatWasDroppedIsMadeAnew(t *testing.T) {
	f := newFinal(t, "", "")
	f.host.Start()
	r := f.life()
	for n := range 2 {
		l := runs(1, "one")
		on, err := r.layer(t.Context(), f.from, &l)
		if err != nil || !f.has(on.snap.ID) {
			t.Fatalf("made %d times: %v", n, err)
		}
		f.drop(on.snap.ID)
	}
}

// Who goes on with a build needs nothing below what it has come to.
func TestWhoTakesABuildOverGoesOnWithItsNewestLayer(t *testing.T) {
	f := newFinal(t, "", "")
	f.host.Start()
	layers := []layer{runs(1, "one"), runs(2, "two"), runs(3, "three")}
	below, newest := f.put("one"), f.put("two")
	if !f.has(below.ID) || !f.has(newest.ID) {
		t.Fatal("they are not there")
	}
	r, from := f.life(), f.from
	for i := range 2 {
		var err error
		if from, err = r.layer(t.Context(), from, &layers[i]); err != nil {
			t.Fatal(err)
		}
	}
	f.drop(below.ID)
	got, n, err := f.life().reached(t.Context(), f.from, layers)
	if err != nil || n != 2 || got.snap.ID != newest.ID {
		t.Errorf("it goes on after %d steps with %q, %v; want 2 with %s", n, got.snap.ID, err, newest.ID)
	}
}

// A base whose files were dropped before the build could claim them has others by now.
func TestABaseThatWasDroppedIsFoundAnew(t *testing.T) {
	f := newFinal(t, "", "")
	f.host.Start()
	gone, now := f.put("old").ID, f.put("new").ID
	b := &template.Built{ID: template.BuiltID(f.who.Tenant, "below"), Build: string(build.NewID()), Base: template.Base, Snapshot: string(now)}
	if err := f.TagBuilt(t.Context(), f.who, "below", []string{"default"}, b); err != nil {
		t.Fatal(err)
	}
	f.drop(gone)
	s := begin(t, f.Core, f.who, build.Spec{Template: "below"})
	if err := f.next(s).append(t.Context(), build.Based{Template: template.Base, Snapshot: string(gone)}); err != nil {
		t.Fatal(err)
	}
	r := f.next(again(t, f.Core, f.who, &s))
	if on, err := r.base(t.Context()); err != nil || on.snap.ID != now || r.now().Base.Snapshot != string(now) {
		t.Errorf("it stands on %q, %v; want %s", on.snap.ID, err, now)
	}
}

// A mark that names layers is read as it was written.
func TestTheRecordHasTheLayers(t *testing.T) {
	f := newFinal(t, "", "")
	r := f.life()
	want := []string{"one", "two"}
	if err := r.log(t.Context(), build.Mark{Step: 1, Layers: want}); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := f.Builds(f.who, func(b *events.Build) bool { return b.ID == f.state.ID })
	if len(b) != 1 || fmt.Sprint(b[0].Mark.Layers) != fmt.Sprint(want) {
		t.Errorf("got %+v", b)
	}
}

// Where what was made of a step is gone, its command is read from its beginning, however far
// the build had come.
func TestAnEarlierStepIsReadFromItsBeginning(t *testing.T) {
	f := newFinal(t, "", "")
	f.host.Start()
	r := f.life()
	if err := r.log(t.Context(), build.Mark{Step: 2, After: 4, HalfOut: []byte("of another ")}); err != nil {
		t.Fatal(err)
	}
	was := r.now().Lines
	l := layer{step: 1, sum: "one", do: &build.Step{Type: build.Run, Args: []string{"echo a b"}}}
	if _, err := r.layer(t.Context(), f.from, &l); err != nil || r.now().Lines != was+2 || r.mark().Step != 1 {
		t.Errorf("%v, %d lines more, and it has come to step %d", err, r.now().Lines-was, r.mark().Step)
	}
}

// Who builds says so while he does other things.
func TestABuildIsReadWhileItsRecordGrows(t *testing.T) {
	f := newFinal(t, "", "")
	r := f.life()
	var held error
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20 {
			if held = r.append(t.Context(), build.Held{By: "a life"}); held != nil {
				return
			}
		}
	})
	for range 200 {
		if req := r.requested(f.from, facts{}); req.Build != string(f.state.ID) || r.key("sandbox", 1) == "" {
			t.Errorf("it is of build %q", req.Build)
		}
	}
	if wg.Wait(); held != nil {
		t.Error(held)
	}
}
