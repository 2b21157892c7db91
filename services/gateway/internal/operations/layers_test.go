package operations_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
)

// builtOf returns a build's result whose files are a layer.
func builtOf(layer sandbox.SnapshotID) *template.Built {
	return &template.Built{ID: template.BuiltID("alice", "app"), Build: string(build.NewID()), Base: "base", Snapshot: string(layer)}
}

// A build may have chosen a layer that is dropped before the build ends.
func TestDroppedLayerMakesNoTemplate(t *testing.T) {
	h := newFixture(t)
	good := builtOf(h.storeLayer())
	if err := h.Templates.TagBuilt(t.Context(), alice, "app", []string{"default"}, good); err != nil {
		t.Fatal(err)
	}
	for name, fits := range map[string]string{"on its host only": "", "with a copy": "fake"} {
		t.Run(name, func(t *testing.T) {
			gone := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Tenant: "alice", Template: "base", Layer: "sum", Taken: time.Now(), Fits: fits}
			gone.Copy.Manifest = fits
			if err := h.log.PutSnapshot(t.Context(), &gone); err != nil {
				t.Fatal(err)
			}
			if h.survivesPrune(gone.ID) {
				t.Fatal("the layer was not pruned")
			}
			wantKind(t, "keep it", h.Snapshots.KeepLayer(t.Context(), gone.ID), kind.NotFound)
			wantKind(t, "tag it", h.Templates.TagBuilt(t.Context(), alice, "app", []string{"default", "v1"}, builtOf(gone.ID)), kind.NotFound)
			if left := h.Templates.List(alice); len(left) != 1 || left[0].Built.Build != good.Build {
				t.Errorf("templates are now %+v, want only the earlier one", left)
			}
		})
	}
	wantKind(t, "keep an unknown layer", h.Snapshots.KeepLayer(t.Context(), sandbox.NewSnapshotID()), kind.NotFound)
}

func TestKeepLayerReportsADroppedLayer(t *testing.T) {
	h := newFixture(t)
	snap := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Tenant: "alice", Host: h.host.Name, Template: "base", Layer: "sum", Taken: time.Now(), Fits: "fake"}
	if err := h.log.PutSnapshot(t.Context(), &snap); err != nil {
		t.Fatal(err)
	}
	if err := h.Core.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept := make(chan error, 1)
	go func() { kept <- h.Snapshots.KeepLayer(t.Context(), snap.ID) }()
	if _, err := h.view.AwaitSnapshot(t.Context(), snap.ID, func(s *sandbox.Snapshot) bool { return s.Copy.Wanted }); err != nil {
		t.Fatal(err)
	}
	if h.survivesPrune(snap.ID) {
		t.Fatal("the layer was not pruned")
	}
	wantKind(t, "keep it", <-kept, kind.NotFound)
}

// Whichever comes first, an existing template has its files.
func TestTagDuringPrune(t *testing.T) {
	h := newFixture(t)
	for round := range 10 {
		of := h.storeLayer()
		for range 64 {
			h.storeLayer()
		}
		other, name := h.newOperations(), fmt.Sprintf("app%d", round)
		var pruned, tagged error
		var wg sync.WaitGroup
		wg.Go(func() { pruned = h.Templates.PruneLayers(t.Context(), alice) })
		wg.Go(func() { tagged = other.Templates.TagBuilt(t.Context(), alice, name, []string{"default"}, builtOf(of)) })
		wg.Wait()
		if err := h.Core.Sync(t.Context()); err != nil || pruned != nil {
			t.Fatal(err, pruned)
		}
		_, left := h.Snapshots.LayerOf(of)
		_, err := h.Templates.Template(t.Context(), alice, name)
		if there := err == nil; there != (tagged == nil) || there && !left {
			t.Errorf("round %d: tagged: %v, template exists: %v, files exist: %v", round, tagged, there, left)
		}
	}
}
