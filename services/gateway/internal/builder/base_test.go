package builder

import (
	"runtime"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/operations"
)

func TestSettingsAreInTheSum(t *testing.T) {
	seen := map[string]string{}
	for name, b := range map[string]template.Built{
		"nothing":            {},
		"a variable":         {Env: map[string]string{"A": "1"}},
		"another value":      {Env: map[string]string{"A": "2"}},
		"a user":             {User: "root"},
		"a directory":        {Workdir: "/root"},
		"both":               {User: "root", Workdir: "/root"},
		"a variable of both": {Env: map[string]string{"A": "1"}, User: "root", Workdir: "/root"},
	} {
		b.Base = template.Base
		o, err := (&resolver{keys: plainKeys{}}).fromTemplate(t.Context(), &catalog.Template{Built: &b})
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[o.sum]; ok {
			t.Errorf("a build on a template with %s reuses the layers of one with %s", name, other)
		}
		seen[o.sum] = name
	}
	if seen["base "+template.Base] != "nothing" { // existing layers stay usable
		t.Error("the sum of a template without settings has changed")
	}
}

// configOf returns the configuration of a Builder on a gateway's operations.
func configOf(c *operations.Operations) Config {
	return Config{
		Builds: c.Builds, Templates: c.Templates, Bases: c.Bases, Layers: c.Snapshots,
		Provisioner: c.Provisioner, Sandboxes: c.Lifecycle, Processes: c.Procs, Keys: c.Core, Sealer: c.Core.Sealer,
	}
}

// newRuns returns a function that starts another run of a build, with its gateway's operations and its principal.
func newRuns(t *testing.T) (c *operations.Operations, principal core.Principal, next func(build.State) *run) {
	t.Helper()
	return newRunsOn(t, eventstest.Open(t, eventstest.Start(t)))
}

func newRunsOn(t *testing.T, log *events.Log) (c *operations.Operations, principal core.Principal, next func(build.State) *run) {
	t.Helper()
	c = operations.New(core.Config{Log: log, View: eventstest.View(t, log), Secret: []byte("secret"), Sealer: eventstest.Ring(t, log), CallTimeout: 5 * time.Second})
	principal = core.Principal{Tenant: "t"}
	return c, principal, func(s build.State) *run {
		state, err := c.Builds.AppendBuild(t.Context(), &s, build.Claimed{By: "a run"})
		if err != nil {
			t.Fatal(err)
		}
		return New(configOf(c)).newRun(state, *state.Spec, principal)
	}
}

// startBuild starts a build that no gateway runs yet, and returns its state in the view.
func startBuild(t *testing.T, c *operations.Operations, principal core.Principal, spec build.Spec) build.State {
	t.Helper()
	s, err := c.Builds.RequestBuild(t.Context(), principal, build.Requested{Name: "made", Tags: []string{"default"}})
	if err == nil {
		err = c.Core.Sync(t.Context())
	}
	if err == nil {
		err = c.Builds.StartBuild(t.Context(), principal, s.Request.Template, s.ID, spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	return reload(t, c, principal, &s)
}

func reload(t *testing.T, c *operations.Operations, principal core.Principal, s *build.State) build.State {
	t.Helper()
	b, err := c.Builds.Build(t.Context(), principal, s.Request.Template, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	return b.State
}

// tag tags a manifest whose variable has the given value.
func tag(t *testing.T, c *operations.Operations, principal core.Principal, name, value string) template.ID {
	t.Helper()
	part := []byte("part")
	if err := c.Templates.PutTemplatePart(t.Context(), template.SumOf(part), part); err != nil {
		t.Fatal(err)
	}
	m := template.Manifest{
		Arch: runtime.GOARCH, Env: map[string]string{"OF": value}, Workdir: "/" + value, Tar: int64(len(part)), Parts: []template.Sum{template.SumOf(part)},
	}
	raw, id, err := m.Encode()
	if err == nil {
		_, err = c.Templates.TagTemplate(t.Context(), principal, name, raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestTakeoverKeepsTheBase(t *testing.T) {
	c, principal, next := newRuns(t)
	built := func(value string) string {
		b := &template.Built{ID: template.BuiltID(principal.Tenant, "built"), Build: value, Base: template.Base, Env: map[string]string{"OF": value}, Workdir: "/" + value}
		b, err := b.Seal(c.Core.Sealer, principal.Tenant)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Templates.TagBuilt(t.Context(), principal, "built", []string{"1"}, b); err != nil {
			t.Fatal(err)
		}
		return b.Base
	}
	for name, put := range map[string]func(value string) (files string){
		"imported:1": func(value string) string { return string(tag(t, c, principal, "imported:1", value)) },
		"built:1":    built,
	} {
		first := put("first")
		s := startBuild(t, c, principal, build.Spec{Template: name})
		was, err := next(s).resolver.base(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		moved := put("moved")
		got, err := next(reload(t, c, principal, &s)).resolver.base(t.Context())
		if err != nil || got.template != first || got.env["OF"] != "first" || got.workdir != "/first" || got.sum != was.sum {
			t.Errorf("%s: continues with the files of %s, the variables %v and %q, %v; want the original ones, of %s",
				name, got.template, got.env, got.workdir, err, first)
		}
		later, err := next(startBuild(t, c, principal, build.Spec{Template: name})).resolver.base(t.Context())
		if err != nil || later.template != moved || later.env["OF"] != "moved" {
			t.Errorf("%s: a new build uses %s with %v, %v", name, later.template, later.env, err)
		}
	}
}
