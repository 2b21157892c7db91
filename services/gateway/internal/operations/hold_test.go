package operations_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
	"github.com/millrace/millrace/services/gateway/internal/operations"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

const idle = time.Minute

// keepHeld moves the deadlines of held sandboxes until the function that it returns is called.
func keepHeld(ctx context.Context, ops *operations.Operations) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { ops.Lifecycle.KeepHeld(ctx) })
	return func() {
		cancel()
		work.Wait()
	}
}

// awaitLater waits until the deadline of a sandbox is at least that late.
func (h *fixture) awaitLater(id sandbox.ID, at time.Time) sandbox.State {
	h.t.Helper()
	st, err := h.view.AwaitSandbox(h.t.Context(), id, func(s *sandbox.State) bool { return !s.Deadline.Before(at) })
	if err != nil {
		h.t.Fatal(err)
	}
	return st
}

// idleSandbox creates a sandbox with an idle timeout, and moves its deadline back to now and less than
// its idle timeout.
func (h *fixture) idleSandbox() sandbox.State {
	h.t.Helper()
	st := h.createWith(sandbox.Requested{Schedule: sandbox.Schedule{Idle: idle, HardEnd: time.Now().Add(time.Hour)}})
	if !st.Deadline.Equal(st.Started.Add(idle)) {
		h.t.Errorf("it ends %v after it ran, want %v", st.Deadline.Sub(st.Started), idle)
	}
	return h.movedBack(st.ID)
}

func (h *fixture) movedBack(id sandbox.ID) sandbox.State {
	h.t.Helper()
	st, err := h.Lifecycle.SetDeadline(h.t.Context(), alice, id, time.Now().Add(idle/2), false)
	if err != nil {
		h.t.Fatal(err)
	}
	return st
}

// E-242, E-244: a sandbox that is held does not become idle, whatever other clients do to its deadline, and
// the release starts its idle timeout again.
func TestHold(t *testing.T) {
	h := newFixture(t)
	stop := keepHeld(t.Context(), h.Operations)
	st := h.idleSandbox()
	begin := time.Now()
	release, ok := h.Lifecycle.Hold(st.ID)
	if !ok {
		t.Fatal("not held")
	}
	h.awaitLater(st.ID, begin.Add(idle))
	begin = time.Now()
	h.movedBack(st.ID)
	h.awaitLater(st.ID, begin.Add(idle))

	h.pause(st.ID)
	begin = time.Now()
	if _, _, err := h.Lifecycle.ResumeSandbox(t.Context(), alice, st.ID, lifecycle.ResumeOptions{Lifetime: time.Second}); err != nil {
		t.Fatal(err)
	}
	h.awaitLater(st.ID, begin.Add(idle)) // the pause does not count

	h.movedBack(st.ID)
	begin = time.Now()
	release()
	release()
	stop() // after a last check
	if st, _ = h.view.Sandbox(st.ID); st.Deadline.Before(begin.Add(idle)) {
		t.Errorf("after the release it has %v left, want %v", st.Deadline.Sub(begin), idle)
	}
	if _, ok := h.Lifecycle.Hold(h.createWith(sandbox.Requested{}).ID); ok {
		t.Error("a sandbox without an idle timeout is held")
	}
}

// Two gateways hold a sandbox. The release at one of them takes nothing from the other.
func TestHoldAtTwoGateways(t *testing.T) {
	h := newFixture(t)
	other := h.newOperations()
	defer keepHeld(t.Context(), h.Operations)()
	defer keepHeld(t.Context(), other)()
	st := h.idleSandbox()
	first, _ := h.Lifecycle.Hold(st.ID)
	second, _ := other.Lifecycle.Hold(st.ID)
	defer second()
	h.awaitLater(st.ID, time.Now().Add(idle))
	first()
	begin := time.Now()
	h.movedBack(st.ID)
	h.awaitLater(st.ID, begin.Add(idle))
}

// AMB-18: an open stream of a process holds its sandbox; an observer's does not.
func TestStreamsHold(t *testing.T) {
	h := newFixture(t)
	defer keepHeld(t.Context(), h.Operations)()
	st := h.idleSandbox()
	id := h.start(st.ID, process.Spec{Cmd: "true"})
	if src, err := record.NewObserver(h.Operations).Read(t.Context(), alice, id, 0); err != nil {
		t.Error(err)
	} else {
		src.Close()
	}
	if now, _ := h.view.Sandbox(st.ID); !now.Deadline.Equal(st.Deadline) {
		t.Error("the observer moved the deadline")
	}
	begin := time.Now()
	src, err := record.NewGateway(h.Operations).Read(t.Context(), alice, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	h.awaitLater(st.ID, begin.Add(idle))
	src.Close()
}
