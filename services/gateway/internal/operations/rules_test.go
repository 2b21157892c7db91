package operations_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
	"github.com/millrace/millrace/services/gateway/internal/procs"
)

func (h *fixture) wantCounts(t *testing.T, ok, failed, killed, active uint64) {
	t.Helper()
	got, err := h.Procs.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[process.Outcome]uint64{process.OutcomeOK: ok, process.OutcomeError: failed, process.OutcomeKilled: killed, process.OutcomeActive: active}
	for o, n := range want {
		if got[o] != n {
			t.Errorf("%d %q, want %d (all: %v)", got[o], o, n, got)
		}
	}
}

// TestProcessListedFromStartToEnd covers C-019: a process is listed as active from its start to its end.
func TestProcessListedFromStartToEnd(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	list := func() int {
		got, err := h.Procs.Processes(t.Context(), alice, st.ID, (*process.Summary).Active)
		if err != nil {
			t.Fatal(err)
		}
		return len(got)
	}
	if n := list(); n != 0 {
		t.Errorf("%d active before the start", n)
	}
	id := h.start(st.ID, process.Spec{Cmd: "sleep"})
	if n := list(); n != 1 {
		t.Errorf("%d active while it runs", n)
	}
	if err := h.Procs.Signal(t.Context(), alice, id, 9); err != nil {
		t.Fatal(err)
	}
	r, err := h.Procs.Read(t.Context(), alice, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	all(t, r)
	if n := list(); n != 0 {
		t.Errorf("%d active after the end", n)
	}
}

// TestSignalCountsAsKilledOnReturn covers C-024: a killed process counts as killed when Signal returns.
func TestSignalCountsAsKilledOnReturn(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	id := h.start(st.ID, process.Spec{Cmd: "sleep"})
	h.wantCounts(t, 0, 0, 0, 1)
	// The process traps SIGTERM and continues: it counts as killed nevertheless.
	if err := h.Procs.Signal(t.Context(), alice, id, 15); err != nil {
		t.Fatal(err)
	}
	h.wantCounts(t, 0, 0, 1, 0)
	if err := h.Procs.Signal(t.Context(), alice, id, 9); err != nil {
		t.Fatal(err)
	}
	h.wantCounts(t, 0, 0, 1, 0) // C-025: only once
	wantKind(t, "signal after the end", h.Procs.Signal(t.Context(), alice, id, 9), kind.NotFound)
	wantKind(t, "no such signal", h.Procs.Signal(t.Context(), alice, id, 65), kind.Invalid)
	wantKind(t, "another tenant", h.Procs.Signal(t.Context(), bob, id, 9), kind.NotFound)
}

// TestCountsAgreeAtEveryGateway covers C-042: every gateway reports the same counts.
func TestCountsAgreeAtEveryGateway(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	for _, cmd := range []string{"true", "true", "fail", "sleep"} {
		h.start(st.ID, process.Spec{Cmd: cmd})
	}
	a, err := h.Procs.Start(t.Context(), alice, st.ID, process.Spec{Cmd: "nocwd"}, procs.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all(t, a.Reader.Reader) // C-041: a process that never started is not counted
	h.wantCounts(t, 2, 1, 0, 1)
	restarted := &fixture{Operations: h.newOperations(), t: t}
	restarted.wantCounts(t, 2, 1, 0, 1)
}

func TestCreateFailureLeavesNoSandbox(t *testing.T) {
	h := newFixture(t)
	g := h.impatient()
	for name, want := range map[string]kind.Kind{"never": kind.Unavailable, "fail": kind.Unavailable} {
		_, err := g.Provisioner.CreateSandbox(t.Context(), alice, sandbox.Requested{Template: "base", Metadata: map[string]string{"make": name}})
		wantKind(t, name, err, want)
		if m := kind.Message(err); m == "secret path /x" {
			t.Errorf("%s: the client receives %q", name, m)
		}
	}
	if err := h.view.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range h.view.Sandboxes(func(s *sandbox.State) bool { return !s.Over() }) {
		t.Errorf("sandbox %s is left in phase %s", s.ID, s.Phase)
	}
	_, err := h.Provisioner.CreateSandbox(t.Context(), core.Principal{Tenant: "alice", Sandbox: "i0"}, sandbox.Requested{})
	wantKind(t, "with a token", err, kind.Denied)
}

func TestSandboxRefused(t *testing.T) {
	for _, want := range []kind.Kind{kind.Exhausted, kind.Unavailable} {
		t.Run(want.String(), func(t *testing.T) {
			h := newFixture(t)
			h.host.Refuse = want
			_, err := h.Provisioner.CreateSandbox(t.Context(), alice, sandbox.Requested{Template: "base"})
			wantKind(t, "create", err, want)
		})
	}
}

func TestDeadline(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	soon, late := time.Now().Add(time.Minute).Round(0), time.Now().Add(2*time.Hour).Round(0)
	steps := []struct {
		name       string
		to         time.Time
		extendOnly bool
		want       time.Time
	}{
		{"extending never shortens", soon, true, st.Deadline},
		{"extending lengthens", late, true, late},
		{"setting shortens", soon, false, soon},
		{"setting lengthens", late, false, late},
	}
	for _, tt := range steps {
		got, err := h.Lifecycle.SetDeadline(t.Context(), alice, st.ID, tt.to, tt.extendOnly)
		if err != nil || !got.Deadline.Equal(tt.want) {
			t.Errorf("%s: %v, %v; want %v", tt.name, got.Deadline, err, tt.want)
		}
	}
	_, err := h.Lifecycle.SetDeadline(t.Context(), bob, st.ID, soon, false)
	wantKind(t, "another tenant", err, kind.NotFound)
	if err := h.Lifecycle.DestroySandbox(t.Context(), alice, st.ID); err != nil {
		t.Fatal(err)
	}
	_, err = h.Lifecycle.SetDeadline(t.Context(), alice, st.ID, late, true)
	wantKind(t, "after its end", err, kind.NotFound)
	wantKind(t, "destroyed twice", h.Lifecycle.DestroySandbox(t.Context(), alice, st.ID), kind.NotFound)
	wantKind(t, "another's", h.Lifecycle.DestroySandbox(t.Context(), bob, h.sandbox(alice).ID), kind.NotFound)
}

// Nothing that a client requests moves a hard end: deadlines are clamped by it.
func TestHardEndIsNotMoved(t *testing.T) {
	h := newFixture(t)
	end := time.Now().Add(time.Hour).Round(0)
	st := h.createWith(sandbox.Requested{Schedule: sandbox.Schedule{Lifetime: 3 * time.Hour, HardEnd: end}})
	check := func(what string, got sandbox.State, err error, want time.Time) {
		t.Helper()
		if err != nil || !got.Deadline.Equal(want) || !got.Request.HardEnd.Equal(end) {
			t.Errorf("%s: %v, hard end %v, %v; want %v", what, got.Deadline, got.Request.HardEnd, err, want)
		}
	}
	check("created", st, nil, end)
	got, err := h.Lifecycle.SetDeadline(t.Context(), alice, st.ID, end.Add(time.Hour), false)
	check("timeout", got, err, end)
	soon := time.Now().Add(time.Minute).Round(0)
	got, err = h.Lifecycle.SetDeadline(t.Context(), alice, st.ID, soon, false)
	check("a shorter timeout", got, err, soon)
	got, err = h.Lifecycle.SetDeadline(t.Context(), alice, st.ID, end.Add(time.Hour), true)
	check("refresh", got, err, end)
	seq := got.Seq
	got, err = h.Lifecycle.SetDeadline(t.Context(), alice, st.ID, end.Add(2*time.Hour), true)
	check("refresh again", got, err, end)
	long := lifecycle.ResumeOptions{Lifetime: 5 * time.Hour, Extend: true}
	got, _, err = h.Lifecycle.ResumeSandbox(t.Context(), alice, st.ID, long)
	check("connect", got, err, end)
	if got.Seq != seq {
		t.Errorf("%d events that change nothing", got.Seq-seq)
	}
	h.pause(st.ID)
	got, _, err = h.Lifecycle.ResumeSandbox(t.Context(), alice, st.ID, long)
	check("resume", got, err, end)
	forks, _, err := h.Provisioner.ForkSandbox(t.Context(), alice, st.ID, 1, 7*time.Hour)
	if err != nil || forks[0].Err != nil {
		t.Fatalf("fork: %v %v", err, forks)
	}
	check("fork", forks[0].State, nil, end)
}

func TestBearer(t *testing.T) {
	h := newFixture(t)
	secure := h.sandbox(alice)
	open, err := h.Provisioner.CreateSandbox(t.Context(), alice, sandbox.Requested{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	gone, ended := sandbox.NewID(), h.sandbox(alice)
	if err := h.Lifecycle.DestroySandbox(t.Context(), alice, ended.ID); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		id    sandbox.ID
		token string
		want  kind.Kind // Internal: none
	}{
		{"right token", secure.ID, h.Lifecycle.Token(secure.ID), 0},
		{"right token at another gateway", secure.ID, h.newOperations().Lifecycle.Token(secure.ID), 0},
		{"no token", secure.ID, "", kind.Unauthenticated},
		{"token of another sandbox", secure.ID, h.Lifecycle.Token(open.ID), kind.Unauthenticated},
		{"no token is needed without secure", open.ID, "", 0},
		{"unknown sandbox, no token", gone, "", kind.NotFound},
		{"ended sandbox, no token", ended.ID, "", kind.NotFound},
		{"ended sandbox, another's token", ended.ID, h.Lifecycle.Token(open.ID), kind.NotFound},
		{"ended sandbox, right token: its records are readable", ended.ID, h.Lifecycle.Token(ended.ID), 0},
		{"unknown sandbox, right token", gone, h.Lifecycle.Token(gone), kind.NotFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := h.Lifecycle.Bearer(t.Context(), tt.id, tt.token)
			if tt.want != 0 {
				wantKind(t, "Bearer", err, tt.want)
			} else if want := (core.Principal{Tenant: "alice", Sandbox: tt.id}); err != nil || p != want {
				t.Errorf("Bearer = %+v, %v; want %+v", p, err, want)
			}
		})
	}
}

// Two requests end a sandbox while it is being created.
func TestDestroyWhileCreating(t *testing.T) {
	h := newFixture(t)
	changed, stop := h.view.Changes()
	defer stop()
	done := make(chan error, 1)
	go func() {
		_, err := h.Provisioner.CreateSandbox(t.Context(), alice, sandbox.Requested{Template: "base", Metadata: map[string]string{"make": "never"}})
		done <- err
	}()
	var found []sandbox.State
	for len(found) == 0 {
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatal("no sandbox")
		}
		found = h.view.Sandboxes(func(*sandbox.State) bool { return true })
	}
	ended := make(chan error, 2)
	for range 2 {
		go func() { ended <- h.Lifecycle.DestroySandbox(t.Context(), alice, found[0].ID) }()
	}
	for range 2 {
		if err := <-ended; err != nil && !kind.Is(err, kind.NotFound) {
			t.Errorf("destroy: %v", err)
		}
	}
	wantKind(t, "create", <-done, kind.Conflict)
}
