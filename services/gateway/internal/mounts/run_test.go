package mounts

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// record is a View of one sandbox.
type record struct {
	View
	st     sandbox.State
	stored []sandbox.Body
	broken error // of a change
}

func (r *record) Sandbox(sandbox.ID) (sandbox.State, bool) { return r.st, r.st.ID != "" }

func (r *record) ChangeSandbox(_ context.Context, _ sandbox.ID, decide func(sandbox.State) ([]sandbox.Body, error)) (sandbox.State, error) {
	if r.broken != nil {
		return r.st, r.broken
	}
	bodies, err := decide(r.st)
	r.stored = bodies
	return r.st, err
}

// cluster is the gateways "own", "other", and "dead", which has ended.
type cluster struct{}

func (cluster) ID() string                        { return "own" }
func (cluster) Gone(run string, _ time.Time) bool { return run == "dead" }

// Only the sandbox of a gateway that has ended is taken over.
func TestClaim(t *testing.T) {
	at := time.Unix(1, 0)
	for _, tt := range []struct {
		name  string
		phase sandbox.Phase
		mount sandbox.WorkspaceMount
		want  bool
		over  bool
	}{
		{"none", sandbox.PhaseRunning, sandbox.WorkspaceMount{}, true, false},
		{"unmounted", sandbox.PhaseRunning, sandbox.WorkspaceMount{Since: at}, true, false},
		{"its own", sandbox.PhaseRunning, sandbox.WorkspaceMount{Gateway: "own", Since: at}, false, false},
		{"another one", sandbox.PhaseRunning, sandbox.WorkspaceMount{Gateway: "other", Since: at}, false, false},
		{"one that has ended", sandbox.PhaseRunning, sandbox.WorkspaceMount{Gateway: "dead", Since: at}, true, false},
		{"a sandbox that ends", sandbox.PhaseStopping, sandbox.WorkspaceMount{}, false, true},
	} {
		r := &record{st: sandbox.State{Phase: tt.phase, Mount: tt.mount}}
		ms := New(Config{View: r, Gateways: cluster{}, Slog: slog.New(slog.DiscardHandler)})
		err := ms.claim(t.Context(), &mount{})
		claimed := len(r.stored) == 1 && r.stored[0] == sandbox.Body(sandbox.Mounted{Gateway: "own"})
		if claimed != tt.want || kind.Is(err, kind.NotFound) != tt.over || err != nil && !tt.over {
			t.Errorf("%s: %v, %v", tt.name, r.stored, err)
		}
	}
}

// What was lost with a sandbox is stored by the gateway that has to, or by another one once that has ended.
func TestForget(t *testing.T) {
	for _, tt := range []struct {
		name         string
		phase        sandbox.Phase
		gateway      string
		stored, kept bool
	}{
		{"unmounted", sandbox.PhaseDestroyed, "", false, false},
		{"lost", sandbox.PhaseLost, "own", true, false},
		{"another one's", sandbox.PhaseLost, "other", false, true},
		{"one's that has ended", sandbox.PhaseLost, "dead", true, false},
		{"failed", sandbox.PhaseFailed, "own", false, false},
	} {
		r := &record{st: sandbox.State{ID: "s", Phase: tt.phase, Mount: sandbox.WorkspaceMount{Gateway: tt.gateway, Since: time.Unix(1, 0)}}}
		ms := New(Config{View: r, Gateways: cluster{}, Slog: slog.New(slog.DiscardHandler)})
		m := &mount{id: "s"}
		ms.all["s"] = m
		ms.forget(t.Context(), m, &r.st)
		if len(r.stored) == 1 != tt.stored || len(ms.all) == 1 != tt.kept {
			t.Errorf("%s: stored %v, kept %d", tt.name, r.stored, len(ms.all))
		}
	}
}

// What was lost is stored later if the log cannot be reached, and a mount ends with its sandbox's place in the view.
func TestMountIsKeptUntilItsEndIsStored(t *testing.T) {
	r := &record{
		st:     sandbox.State{ID: "s", Phase: sandbox.PhaseLost, Mount: sandbox.WorkspaceMount{Gateway: "own", Since: time.Unix(1, 0)}},
		broken: kind.New(kind.Unavailable, "append", "s", "the log cannot be reached"),
	}
	ms := New(Config{View: r, Gateways: cluster{}, Slog: slog.New(slog.DiscardHandler)})
	keep := func() { ms.each(func(m *mount, st *sandbox.State) { ms.keep(t.Context(), m, st, time.Now()) }) }
	ms.all["s"] = &mount{id: "s"}
	if keep(); len(ms.all) == 0 || len(r.stored) != 0 {
		t.Errorf("%d mounts without the log, stored %v", len(ms.all), r.stored)
	}
	r.broken = nil
	if keep(); len(r.stored) != 1 {
		t.Errorf("stored %v", r.stored)
	}
	r.st.ID = ""
	ms.all["s"] = &mount{id: "s"}
	if keep(); len(ms.all) != 0 {
		t.Errorf("%d mounts of sandboxes that no view has", len(ms.all))
	}
}
