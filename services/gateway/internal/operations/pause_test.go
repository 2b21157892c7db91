package operations_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
	"github.com/millrace/millrace/services/gateway/internal/procs"
)

// createWith creates a sandbox whose metadata script the host.
func (h *fixture) createWith(req sandbox.Requested) sandbox.State {
	h.t.Helper()
	req.Template = "base"
	st, err := h.Provisioner.CreateSandbox(h.t.Context(), alice, req)
	if err != nil {
		h.t.Fatal(err)
	}
	return st
}

func (h *fixture) pause(id sandbox.ID) {
	h.t.Helper()
	if err := h.Lifecycle.PauseSandbox(h.t.Context(), alice, id, false); err != nil {
		h.t.Fatalf("pause: %v", err)
	}
}

func TestPauseAndResume(t *testing.T) {
	h := newFixture(t)
	st := h.createWith(sandbox.Requested{Schedule: sandbox.Schedule{Lifetime: 15 * time.Second}})
	opt := lifecycle.ResumeOptions{Lifetime: time.Hour, OnTimeout: sandbox.OnTimeoutPause}
	got, resumed, err := h.Lifecycle.ResumeSandbox(t.Context(), alice, st.ID, opt)
	if err != nil || resumed || !got.Deadline.Equal(st.Deadline) {
		t.Errorf("resume of one that runs: %v, %v, until %v", resumed, err, got.Deadline)
	}
	wantKind(t, "another tenant", h.Lifecycle.PauseSandbox(t.Context(), bob, st.ID, false), kind.NotFound)
	h.pause(st.ID)
	wantKind(t, "paused twice", h.Lifecycle.PauseSandbox(t.Context(), alice, st.ID, false), kind.Conflict)
	_, err = h.Lifecycle.SetDeadline(t.Context(), alice, st.ID, time.Now(), false)
	wantKind(t, "deadline of a paused one", err, kind.Conflict)
	_, err = h.Procs.Start(t.Context(), alice, st.ID, process.Spec{Cmd: "true"}, procs.StartOptions{})
	wantKind(t, "start in a paused one", err, kind.Conflict)
	_, _, err = h.Lifecycle.ResumeSandbox(t.Context(), bob, st.ID, opt)
	wantKind(t, "resumed by another tenant", err, kind.NotFound)
	asked := time.Now()
	got, resumed, err = h.Lifecycle.ResumeSandbox(t.Context(), alice, st.ID, opt)
	if err != nil || !resumed || !got.IsRunning() || got.Deadline.Before(asked.Add(opt.Lifetime)) || got.Deadline.After(time.Now().Add(opt.Lifetime)) || got.Request.OnTimeout != sandbox.OnTimeoutPause {
		t.Errorf("resume: %v, %v, %+v", resumed, err, got)
	}
	h.start(st.ID, process.Spec{Cmd: "true"})
	h.pause(st.ID)
	if err := h.Lifecycle.DestroySandbox(t.Context(), alice, st.ID); err != nil {
		t.Errorf("destroy of a paused one: %v", err)
	}
	wantKind(t, "pause after the end", h.Lifecycle.PauseSandbox(t.Context(), alice, st.ID, false), kind.NotFound)
	_, _, err = h.Lifecycle.ResumeSandbox(t.Context(), alice, st.ID, opt)
	wantKind(t, "resume after the end", err, kind.NotFound)
}

func TestPauseThatFails(t *testing.T) {
	h := newFixture(t)
	st := h.createWith(sandbox.Requested{Metadata: map[string]string{"pause": "never"}})
	wantKind(t, "a driver that cannot", h.Lifecycle.PauseSandbox(t.Context(), alice, st.ID, false), kind.Unimplemented)
	st = h.createWith(sandbox.Requested{Metadata: map[string]string{"pause": "fail"}})
	err := h.Lifecycle.PauseSandbox(t.Context(), alice, st.ID, false)
	wantKind(t, "a driver that fails", err, kind.Unavailable)
	h.start(st.ID, process.Spec{Cmd: "true"}) // it continues to run
	st = h.createWith(sandbox.Requested{Metadata: map[string]string{"resume": "fail"}})
	h.pause(st.ID)
	for range 2 {
		_, _, err = h.Lifecycle.ResumeSandbox(t.Context(), alice, st.ID, lifecycle.ResumeOptions{Lifetime: time.Hour})
		wantKind(t, "a resume that fails", err, kind.Unavailable)
	}
}

// A pause joins one of its kind that is under way; one answer serves both.
func TestPausesAreJoined(t *testing.T) {
	h := newFixture(t)
	st := h.createWith(sandbox.Requested{Metadata: map[string]string{"pause": "held"}})
	first := make(chan error, 1)
	go func() { first <- h.Lifecycle.PauseSandbox(t.Context(), alice, st.ID, false) }()
	if _, err := h.view.AwaitSandbox(t.Context(), st.ID, func(s *sandbox.State) bool { return s.Phase == sandbox.PhasePausing }); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantKind(t, "a pause beside another, which is not over", h.Lifecycle.PauseSandbox(short, alice, st.ID, false), kind.Unavailable)
	wantKind(t, "a pause of another kind", h.Lifecycle.PauseSandbox(t.Context(), alice, st.ID, true), kind.Conflict)
	if _, err := h.view.ChangeSandbox(t.Context(), st.ID, func(sandbox.State) ([]sandbox.Body, error) { return []sandbox.Body{sandbox.Paused{}}, nil }); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	wantKind(t, "a pause of a paused sandbox", h.Lifecycle.PauseSandbox(t.Context(), alice, st.ID, false), kind.Conflict)
}

// Traffic resumes a paused sandbox if it was created with autoResume.
func TestTrafficResumes(t *testing.T) {
	h := newFixture(t)
	st := h.createWith(sandbox.Requested{AutoResume: true, Schedule: sandbox.Schedule{Lifetime: time.Hour}})
	id := h.start(st.ID, process.Spec{Cmd: "cat", Stdin: true})
	uses := map[string]func() error{
		"input":       func() error { return h.Procs.SendInput(t.Context(), alice, id, []byte("x"), false) },
		"a start":     func() error { h.start(st.ID, process.Spec{Cmd: "true"}); return nil },
		"its traffic": func() error { _, err := h.Lifecycle.Wake(t.Context(), st.ID); return err },
		"a guard":     func() error { _, err := h.Lifecycle.Running(t.Context(), alice, st.ID); return err },
	}
	for name, use := range uses {
		h.pause(st.ID)
		if ok, err := h.Lifecycle.Alive(t.Context(), st.ID); ok || err != nil {
			t.Errorf("Alive of a paused sandbox: %v, %v", ok, err)
		}
		if err := use(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := h.Lifecycle.Lookup(t.Context(), alice, st.ID)
		if err != nil || !got.IsRunning() || time.Until(got.Deadline) < 59*time.Minute {
			t.Errorf("after %s: %s until %v, %v", name, got.Phase, got.Deadline, err)
		}
	}
	st = h.createWith(sandbox.Requested{})
	h.pause(st.ID)
	for name, ask := range map[string]func() (bool, error){
		"Running": func() (bool, error) { return h.Lifecycle.Running(t.Context(), alice, st.ID) },
		"Wake":    func() (bool, error) { return h.Lifecycle.Wake(t.Context(), st.ID) },
	} {
		if ok, err := ask(); ok || err != nil {
			t.Errorf("%s resumed a sandbox without autoResume: %v, %v", name, ok, err)
		}
	}
}

// A sandbox that is paused before its creator sees it running counts as created.
func TestPausedSandboxCountsAsCreated(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	if err := h.Lifecycle.PauseSandbox(t.Context(), alice, st.ID, false); err != nil {
		t.Fatal(err)
	}
	got, err := h.Provisioner.EnsureSandbox(t.Context(), alice, st.ID, st.Request)
	if err != nil || got.Phase != sandbox.PhasePaused {
		t.Errorf("phase %q, %v; want paused", got.Phase, err)
	}
}
