package builder

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core/coretest"
)

// storeUnreachable stores a layer with a sum on a live host that accepts no sandbox.
func (f *fixture) storeUnreachable(sum, manifest string) sandbox.Snapshot {
	f.t.Helper()
	h := coretest.New(f.t, f.log, f.view)
	h.Name = "away"
	h.Lease(f.t.Context(), fleet.Lease{TTL: time.Hour})
	s := f.storeLayer(sum)
	s.ID, s.Host, s.Copy.Manifest = sandbox.NewSnapshotID(), h.Name, manifest
	if err := f.log.PutSnapshot(f.t.Context(), &s); err != nil {
		f.t.Fatal(err)
	}
	f.drop(f.layerOn(sum, f.host.Name))
	return s
}

func (f *fixture) layerOn(sum, host string) sandbox.SnapshotID {
	f.t.Helper()
	if err := f.view.Sync(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	all := f.view.Snapshots(func(s *sandbox.Snapshot) bool { return s.Layer == sum && s.Host == host && !s.Deleted })
	if len(all) != 1 {
		f.t.Fatalf("%d layers", len(all))
	}
	return all[0].ID
}

func (f *fixture) buildLog() string {
	f.t.Helper()
	b, err := f.Builds.Build(f.t.Context(), f.principal, f.state.Request.Template, f.state.ID)
	if err != nil {
		f.t.Fatal(err)
	}
	lines, _, err := f.Builds.BuildLines(f.t.Context(), &b, 0, b.Lines, func(*build.Line) bool { return true })
	if err != nil {
		f.t.Fatal(err)
	}
	var all strings.Builder
	for _, l := range lines {
		all.WriteString(l.Text + "\n")
	}
	return all.String()
}

// A layer whose host is lost between its choice and the next step counts as missing.
func TestLayerLostWithItsHostIsBuiltAgain(t *testing.T) {
	f := newFixture(t, "", "")
	f.host.Start()
	layers := []layer{runLayer(1, "one"), runLayer(2, "two"), runLayer(3, "three")}
	gone := f.storeUnreachable("two", "")
	f.storeLayer("one")
	r := f.newRun()
	on, err := r.steps(t.Context(), f.from, layers, settings{})
	if err != nil || on.snap.Layer != "three" || on.snap.Host != f.host.Name {
		t.Fatalf("got layer %q on %q, %v; log:\n%s", on.snap.Layer, on.snap.Host, err, f.buildLog())
	}
	if text := f.buildLog(); !strings.Contains(text, "CACHED [builder 2/") || !strings.Contains(text, "building the layer again") {
		t.Errorf("log:\n%s", text)
	}
	if again, err := f.newRun().steps(t.Context(), f.from, layers, settings{}); err != nil || again.snap.ID != on.snap.ID {
		t.Errorf("the successor has %s, %v; want %s", again.snap.ID, err, on.snap.ID)
	}
	if !f.has(gone.ID) {
		t.Error("the layer was dropped although its host may come back")
	}
}

// Layers that other hosts can load, and the base of the whole build, are not built again.
func TestReachableLayersAreNotBuiltAgain(t *testing.T) {
	for what, tt := range map[string]struct {
		manifest string
		base     bool
	}{"a layer in the store": {"a manifest", false}, "the base": {"", true}} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t, "", "")
			f.host.Start()
			s := f.storeUnreachable("one", tt.manifest)
			layers := []layer{runLayer(1, "one"), runLayer(2, "two")}
			if tt.base {
				f.from.snap, layers = s, layers[1:]
			}
			r := f.newRun()
			if _, err := r.steps(t.Context(), f.from, layers, settings{}); !kind.Is(err, kind.Unavailable) || stepOf(err) != "2" || strings.Contains(f.buildLog(), "again") || len(layers) > 1 && !strings.Contains(f.buildLog(), "CACHED") {
				t.Errorf("got %v; log:\n%s", err, f.buildLog())
			}
		})
	}
}
