package operations_test

import (
	"testing"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// A template that is deleted at the moment at which its build tags the result does not come
// back, and no other build's template is removed.
func TestADeletedTemplateStaysDeleted(t *testing.T) {
	h := newFixture(t)
	s, err := h.Builds.RequestBuild(t.Context(), alice, build.Requested{Name: "app", Tags: []string{"default", "v1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Builds.StartBuild(t.Context(), alice, "app", s.ID, build.Spec{Template: "base"}); err != nil {
		t.Fatal(err)
	}
	made := func(by build.ID) *template.Built {
		return &template.Built{ID: template.ID(s.Request.Template), Build: string(by), Base: "base"}
	}
	if err := h.Templates.DeleteTemplate(t.Context(), alice, "app"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "tag what was deleted", h.Templates.TagBuilt(t.Context(), alice, "app", s.Request.Tags, made(s.ID)), kind.NotFound)
	if left := h.Templates.List(alice); len(left) != 0 {
		t.Errorf("the template came back: %+v", left)
	}
	other, err := h.Builds.RequestBuild(t.Context(), alice, build.Requested{Name: "app", Tags: []string{"default"}})
	if err == nil {
		err = h.Templates.TagBuilt(t.Context(), alice, "app", []string{"default"}, made(other.ID))
	}
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, "tag it once more", h.Templates.TagBuilt(t.Context(), alice, "app", []string{"v1"}, made(s.ID)), kind.NotFound)
	if left := h.Templates.List(alice); len(left) != 1 || left[0].Built.Build != string(other.ID) {
		t.Errorf("templates of the other build: %+v", left)
	}
}

// Removing another team's public template does not remove one's own of the same name.
func TestAnothersTemplateIsNotRemoved(t *testing.T) {
	h := newFixture(t)
	for _, p := range []core.Principal{alice, bob} {
		b := &template.Built{ID: template.BuiltID(p.Tenant, "app"), Build: string(build.NewID()), Base: "base"}
		if err := h.Templates.TagBuilt(t.Context(), p, "app", []string{"default"}, b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Templates.Publish(t.Context(), bob, "app", true); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Templates.Template(t.Context(), alice, "bob/app"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "remove bob's", h.Templates.RemoveTemplate(t.Context(), alice, "bob/app:default"), kind.NotFound)
	for _, p := range []core.Principal{alice, bob} {
		if left := h.Templates.List(p); len(left) != 1 {
			t.Errorf("%s has %d templates", p.Tenant, len(left))
		}
	}
}

// The template name of E2B's code interpreter stands for the built template once that
// exists.
func TestInterpreterName(t *testing.T) {
	h := newFixture(t)
	root := func() string {
		t.Helper()
		req, err := h.Templates.FromTemplate(t.Context(), alice, template.Interpreter, sandbox.Requested{})
		if err != nil {
			t.Fatal(err)
		}
		return req.Template
	}
	if got := root(); got != template.Interpreter {
		t.Errorf("before: %q, want the host's own files", got)
	}
	id := build.NewID()
	b := &template.Built{ID: template.BuiltID("alice", template.BuiltInterpreter), Build: string(id), Base: "its base"}
	if err := h.Templates.TagBuilt(t.Context(), alice, template.BuiltInterpreter, []string{"default"}, b); err != nil {
		t.Fatal(err)
	}
	if got := root(); got != "its base" {
		t.Errorf("after: %q, want the built template's base", got)
	}
}
