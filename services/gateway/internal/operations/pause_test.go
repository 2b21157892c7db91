package operations_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// createWith creates a sandbox whose metadata script the host.
func (h *fixture) createWith(req sandbox.Requested) sandbox.State {
	h.t.Helper()
	req.Template = "base"
	st, err := h.Core.CreateSandbox(h.t.Context(), alice, req)
	if err != nil {
		h.t.Fatal(err)
	}
	return st
}

func (h *fixture) pause(id sandbox.ID) {
	h.t.Helper()
	if err := h.Core.PauseSandbox(h.t.Context(), alice, id, false); err != nil {
		h.t.Fatalf("pause: %v", err)
	}
}

func TestPauseAndResume(t *testing.T) {
	h := newFixture(t)
	st := h.createWith(sandbox.Requested{Lifetime: 15 * time.Second})
	opt := core.ResumeOptions{Lifetime: time.Hour, OnTimeout: sandbox.OnTimeoutPause}
	got, resumed, err := h.Core.ResumeSandbox(t.Context(), alice, st.ID, opt)
	if err != nil || resumed || !got.Deadline.Equal(st.Deadline) {
		t.Errorf("resume of one that runs: %v, %v, until %v", resumed, err, got.Deadline)
	}
	wantKind(t, "another tenant", h.Core.PauseSandbox(t.Context(), bob, st.ID, false), kind.NotFound)
	h.pause(st.ID)
	wantKind(t, "paused twice", h.Core.PauseSandbox(t.Context(), alice, st.ID, false), kind.Conflict)
	_, err = h.Core.SetDeadline(t.Context(), alice, st.ID, time.Now(), false)
	wantKind(t, "deadline of a paused one", err, kind.Conflict)
	_, err = h.Core.Start(t.Context(), alice, st.ID, process.Spec{Cmd: "true"}, core.StartOptions{})
	wantKind(t, "start in a paused one", err, kind.Conflict)
	_, _, err = h.Core.ResumeSandbox(t.Context(), bob, st.ID, opt)
	wantKind(t, "resumed by another tenant", err, kind.NotFound)
	asked := time.Now()
	got, resumed, err = h.Core.ResumeSandbox(t.Context(), alice, st.ID, opt)
	if err != nil || !resumed || !got.IsRunning() || got.Deadline.Before(asked.Add(opt.Lifetime)) || got.Deadline.After(time.Now().Add(opt.Lifetime)) || got.Request.OnTimeout != sandbox.OnTimeoutPause {
		t.Errorf("resume: %v, %v, %+v", resumed, err, got)
	}
	h.start(st.ID, process.Spec{Cmd: "true"})
	h.pause(st.ID)
	if err := h.Core.DestroySandbox(t.Context(), alice, st.ID); err != nil {
		t.Errorf("destroy of a paused one: %v", err)
	}
	wantKind(t, "pause after the end", h.Core.PauseSandbox(t.Context(), alice, st.ID, false), kind.NotFound)
	_, _, err = h.Core.ResumeSandbox(t.Context(), alice, st.ID, opt)
	wantKind(t, "resume after the end", err, kind.NotFound)
}

func TestPauseThatFails(t *testing.T) {
	h := newFixture(t)
	st := h.createWith(sandbox.Requested{Metadata: map[string]string{"pause": "never"}})
	wantKind(t, "a driver that cannot", h.Core.PauseSandbox(t.Context(), alice, st.ID, false), kind.Unimplemented)
	st = h.createWith(sandbox.Requested{Metadata: map[string]string{"pause": "fail"}})
	err := h.Core.PauseSandbox(t.Context(), alice, st.ID, false)
	wantKind(t, "a driver that fails", err, kind.Unavailable)
	h.start(st.ID, process.Spec{Cmd: "true"}) // it continues to run
	st = h.createWith(sandbox.Requested{Metadata: map[string]string{"resume": "fail"}})
	h.pause(st.ID)
	for range 2 {
		_, _, err = h.Core.ResumeSandbox(t.Context(), alice, st.ID, core.ResumeOptions{Lifetime: time.Hour})
		wantKind(t, "a resume that fails", err, kind.Unavailable)
	}
}

// A pause joins one of its kind that is under way; one answer serves both.
func TestPausesAreJoined(t *testing.T) {
	h := newFixture(t)
	st := h.createWith(sandbox.Requested{Metadata: map[string]string{"pause": "held"}})
	first := make(chan error, 1)
	go func() { first <- h.Core.PauseSandbox(t.Context(), alice, st.ID, false) }()
	if _, err := h.view.AwaitSandbox(t.Context(), st.ID, func(s *sandbox.State) bool { return s.Phase == sandbox.PhasePausing }); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantKind(t, "a pause beside another, which is not over", h.Core.PauseSandbox(short, alice, st.ID, false), kind.Unavailable)
	wantKind(t, "a pause of another kind", h.Core.PauseSandbox(t.Context(), alice, st.ID, true), kind.Conflict)
	if _, err := h.view.ChangeSandbox(t.Context(), st.ID, func(sandbox.State) ([]sandbox.Body, error) { return []sandbox.Body{sandbox.Paused{}}, nil }); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	wantKind(t, "a pause of a paused sandbox", h.Core.PauseSandbox(t.Context(), alice, st.ID, false), kind.Conflict)
}

// Traffic resumes a paused sandbox if it was created with autoResume.
func TestTrafficResumes(t *testing.T) {
	h := newFixture(t)
	st := h.createWith(sandbox.Requested{AutoResume: true, Lifetime: time.Hour})
	id := h.start(st.ID, process.Spec{Cmd: "cat", Stdin: true})
	uses := map[string]func() error{
		"input":       func() error { return h.Core.SendInput(t.Context(), alice, id, []byte("x"), false) },
		"a start":     func() error { h.start(st.ID, process.Spec{Cmd: "true"}); return nil },
		"its traffic": func() error { _, err := h.Core.Wake(t.Context(), st.ID); return err },
		"a guard":     func() error { _, err := h.Core.Running(t.Context(), alice, st.ID); return err },
	}
	for name, use := range uses {
		h.pause(st.ID)
		if ok, err := h.Core.Alive(t.Context(), st.ID); ok || err != nil {
			t.Errorf("Alive of a paused sandbox: %v, %v", ok, err)
		}
		if err := use(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := h.Core.Lookup(t.Context(), alice, st.ID)
		if err != nil || !got.IsRunning() || time.Until(got.Deadline) < 59*time.Minute {
			t.Errorf("after %s: %s until %v, %v", name, got.Phase, got.Deadline, err)
		}
	}
	st = h.createWith(sandbox.Requested{})
	h.pause(st.ID)
	for name, ask := range map[string]func() (bool, error){
		"Running": func() (bool, error) { return h.Core.Running(t.Context(), alice, st.ID) },
		"Wake":    func() (bool, error) { return h.Core.Wake(t.Context(), st.ID) },
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
	if err := h.Core.PauseSandbox(t.Context(), alice, st.ID, false); err != nil {
		t.Fatal(err)
	}
	got, err := h.Core.EnsureSandbox(t.Context(), alice, st.ID, st.Request)
	if err != nil || got.Phase != sandbox.PhasePaused {
		t.Errorf("phase %q, %v; want paused", got.Phase, err)
	}
}
