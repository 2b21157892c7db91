package operations_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
)

// tagPart creates a template of one part and returns its id and the part's sum.
func (h *fixture) tagPart(name, content string) (template.ID, template.Sum) {
	h.t.Helper()
	sum := template.SumOf([]byte(content))
	m := template.Manifest{Arch: "amd64", Tar: int64(len(content)), Parts: []template.Sum{sum}}
	raw, id, err := m.Encode()
	if err == nil {
		err = h.Templates.PutTemplatePart(h.t.Context(), sum, []byte(content))
	}
	if err == nil {
		_, err = h.Templates.TagTemplate(h.t.Context(), alice, name, raw)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return id, sum
}

func (h *fixture) hasPart(sum template.Sum) bool {
	h.t.Helper()
	has, err := h.Templates.HasTemplatePart(h.t.Context(), sum)
	if err != nil {
		h.t.Fatal(err)
	}
	return has
}

// The template that snapshots and built templates of any tenant are based on stays available
// to hosts as long as they exist, even if it loses its names.
func TestTemplateKeptWhileInUse(t *testing.T) {
	h := newFixture(t)
	ctx := t.Context()
	for name, lose := range map[string]func(name string) error{
		"removed":  func(name string) error { return h.Templates.RemoveTemplate(ctx, alice, name) },
		"untagged": func(name string) error { return h.Templates.RemoveTags(ctx, alice, name, []string{"v1"}) },
		"deleted":  func(name string) error { return h.Templates.DeleteTemplate(ctx, alice, name) },
		"moved":    func(name string) error { h.tagPart(name, "another"); return nil },
		"assigned": func(name string) error {
			h.tagPart("assigned:v2", "another")
			_, err := h.Templates.AssignTags(ctx, alice, "assigned:v2", []string{"v1"})
			return err
		},
		"builtover": func(name string) error {
			b := template.Built{ID: template.BuiltID("alice", "builtover"), Build: string(build.NewID()), Base: "base"}
			return h.Templates.TagBuilt(ctx, alice, "builtover", []string{"v1"}, &b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			id, sum := h.tagPart(name+":v1", name)
			snap := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Tenant: "bob", Template: string(id)}
			if err := h.log.PutSnapshot(ctx, &snap); err != nil {
				t.Fatal(err)
			}
			if err := lose(name + ":v1"); err != nil {
				t.Fatal(err)
			}
			if err := h.view.Sync(ctx); err != nil {
				t.Fatal(err)
			}
			if _, ok := h.view.TemplateByID(id); !ok || !h.hasPart(sum) {
				t.Errorf("hosts find the template: %v, its part is stored: %v", ok, h.hasPart(sum))
			}
			if _, err := h.Templates.Template(ctx, alice, string(id)); !kind.Is(err, kind.NotFound) {
				t.Errorf("find by id: %v, want NotFound", err)
			}
			if err := h.Templates.PruneLayers(ctx, alice); err != nil || !h.hasPart(sum) {
				t.Errorf("pruned although a snapshot is based on it: %v", err)
			}
			if err := h.Snapshots.DeleteSnapshot(ctx, bob, string(snap.ID)); err != nil || h.hasPart(sum) {
				t.Errorf("the part outlives the last snapshot based on it: %v", err)
			}
		})
	}
}

func TestTemplateKeptForAnotherTenantsBuild(t *testing.T) {
	h := newFixture(t)
	id, sum := h.tagPart("app:v1", "app")
	b := template.Built{ID: template.BuiltID("bob", "own"), Build: string(build.NewID()), Base: string(id)}
	if err := h.Templates.TagBuilt(t.Context(), bob, "own", []string{"default"}, &b); err != nil {
		t.Fatal(err)
	}
	if err := h.Templates.RemoveTemplate(t.Context(), alice, "app:v1"); err != nil || !h.hasPart(sum) {
		t.Errorf("removed although bob's template is based on it: %v", err)
	}
	if err := h.Templates.DeleteTemplate(t.Context(), bob, "own"); err != nil || h.hasPart(sum) {
		t.Errorf("the part outlives the last template based on it: %v", err)
	}
}

// runningBuild returns a running build of bob's on a base.
func (h *fixture) runningBuild(on build.Based) build.State {
	h.t.Helper()
	ctx := h.t.Context()
	s, err := h.Builds.RequestBuild(ctx, bob, build.Requested{Name: "made", Tags: []string{"default"}})
	if err == nil {
		s, err = h.Builds.AppendBuild(ctx, &s, build.Started{Spec: build.Spec{Template: "x"}}, build.Claimed{By: "a run"}, on)
	}
	if err == nil {
		err = h.Core.Sync(ctx)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

func TestTemplateKeptForRunningBuild(t *testing.T) {
	h := newFixture(t)
	id, sum := h.tagPart("app:v1", "app")
	s := h.runningBuild(build.Based{Template: string(id)})
	if err := h.Templates.RemoveTemplate(t.Context(), alice, "app:v1"); err != nil || !h.hasPart(sum) {
		t.Errorf("removed although bob's build is based on it: %v", err)
	}
	if _, err := h.Builds.AppendBuild(t.Context(), &s, build.Failed{}); err != nil {
		t.Fatal(err)
	}
	if err := h.Templates.PruneLayers(t.Context(), bob); err != nil || h.hasPart(sum) {
		t.Errorf("the part outlives the build: %v", err)
	}
}

// storeLayer stores a layer of alice's.
func (h *fixture) storeLayer() sandbox.SnapshotID {
	h.t.Helper()
	snap := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Tenant: "alice", Template: "base", Layer: "sum", Taken: time.Now()}
	if err := h.log.PutSnapshot(h.t.Context(), &snap); err != nil {
		h.t.Fatal(err)
	}
	return snap.ID
}

// survivesPrune adds more unused layers of alice's than are kept, prunes them, and reports whether
// the older layer base is left.
func (h *fixture) survivesPrune(base sandbox.SnapshotID) (left bool) {
	h.t.Helper()
	for range 65 {
		h.storeLayer()
	}
	if err := h.Templates.PruneLayers(h.t.Context(), alice); err != nil {
		h.t.Fatal(err)
	}
	_, left = h.Snapshots.LayerOf(base)
	return left
}

func TestLayerKeptForRunningBuild(t *testing.T) {
	h := newFixture(t)
	base := h.storeLayer()
	s := h.runningBuild(build.Based{Template: "base", Snapshot: string(base)})
	if !h.survivesPrune(base) {
		t.Error("the layer was pruned although a build uses it")
	}
	if _, err := h.Builds.AppendBuild(t.Context(), &s, build.Failed{}); err != nil {
		t.Fatal(err)
	}
	if h.survivesPrune(base) {
		t.Error("the layer outlives the build")
	}
}

// A build without a step that changes files uses the layer of its base as its own.
func TestLayerKeptForAnotherTenantsTemplate(t *testing.T) {
	h := newFixture(t)
	base, ref := h.storeLayer(), template.Ref{Name: "own", Tag: "default"}
	b := template.Built{ID: template.BuiltID("bob", "own"), Build: string(build.NewID()), Base: "base", Snapshot: string(base)}
	if err := h.log.TagBuilt(t.Context(), "bob", ref, &b); err != nil {
		t.Fatal(err)
	}
	if !h.survivesPrune(base) {
		t.Error("the layer was pruned although bob's template uses it")
	}
	if err := h.log.UntagTemplate(t.Context(), "bob", ref); err != nil {
		t.Fatal(err)
	}
	if h.survivesPrune(base) {
		t.Error("the layer outlives the template")
	}
}
