package sandboxes

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/session"
)

// Counting processes waits for one sandbox's lock without holding the set's, which the holder
// may wait for.
func TestCountingDoesNotHoldTheSetsLock(t *testing.T) {
	set := newSet(t, Config{})
	sb := set.newSandbox(&sandbox.State{ID: sandbox.NewID(), Phase: sandbox.PhaseRunning})
	set.byID[sb.id] = sb
	sb.current.Set(sb.id, fakeInstance{shim: func(net.Conn) {}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sb.mu.Lock() // the session waits for it in its own lock
	var counting sync.WaitGroup
	counting.Go(func() { sb.session.Serve(ctx, neverPaused{}, sb.running) })
	for !within(t.Name(), "(*hostSandbox).ending(") {
		runtime.Gosched()
	}
	counting.Go(func() { set.Counts() })
	for !within(t.Name(), "(*Session).Count(") { // it waits for the lock
		runtime.Gosched()
	}
	if !set.mu.TryLock() {
		t.Error("Set.mu is held while Counts waits for a sandbox")
	} else {
		set.mu.Unlock()
	}
	sb.mu.Unlock()
	cancel()
	counting.Wait()
}

// neverPaused is a sandbox that is not paused.
type neverPaused struct{ session.Pauses }

func (neverPaused) AwaitResumed(context.Context) error { return nil }
func (neverPaused) Changed() <-chan struct{}           { return nil }

// within reports whether a goroutine started by by is in a function.
func within(by, function string) bool {
	stacks := make([]byte, 1<<20)
	for stack := range bytes.SplitSeq(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
		if bytes.Contains(stack, []byte(by)) && bytes.Contains(stack, []byte(function)) {
			return true
		}
	}
	return false
}

// Clients receive the reason of a failed create, but no internals.
func TestFailureMessages(t *testing.T) {
	for want, err := range map[string]error{
		"the sandbox ended by itself":            nil,
		"the disk of the sandbox's host is full": kind.Wrap(kind.Unavailable, "create sandbox", "s", &os.PathError{Op: "mkdir", Path: "/secret", Err: syscall.ENOSPC}),
		"internal":                               errors.New("a secret"),
	} {
		if got := failureMessage(err); got != want {
			t.Errorf("failureMessage(%v) = %q, want %q", err, got, want)
		}
	}
}

// Whether a sandbox has a loopback of its own is known before its driver is open.
func TestIsolationComesFromTheRecord(t *testing.T) {
	for _, level := range []sandbox.Isolation{"", sandbox.IsolationNone, sandbox.IsolationKernel} {
		sb := bareIn(t, Config{}, &sandbox.State{ID: "b", Phase: sandbox.PhaseRunning, Isolation: level})
		if got := sb.created.Isolation; got != level {
			t.Errorf("isolation %q, want %q", got, level)
		}
	}
}

// A sandbox that has resumed accepts commands before its record has that, until the next pause.
func TestPauseState(t *testing.T) {
	sb := bareIn(t, Config{}, &sandbox.State{ID: "b", Phase: sandbox.PhasePaused})
	steps := []struct {
		name string
		do   func()
		want bool
	}{
		{"loaded while paused", func() {}, true},
		{"resume requested", func() { sb.setDesired(&sandbox.State{Phase: sandbox.PhaseResuming, Seq: 1}) }, true},
		{"instance resumed", sb.pausing.markResumed, false},
		{"resume failed to be recorded", func() { sb.setDesired(&sandbox.State{Phase: sandbox.PhasePaused, Seq: 2}) }, false},
		{"recorded", func() { sb.setDesired(&sandbox.State{Phase: sandbox.PhaseRunning, Seq: 3}) }, false},
		{"pause requested", func() { sb.setDesired(&sandbox.State{Phase: sandbox.PhasePausing, Seq: 4}) }, true},
		{"pause failed", sb.pausing.markResumed, false},
		{"an older state", func() { sb.setDesired(&sandbox.State{Phase: sandbox.PhasePaused, Seq: 3}) }, false},
		{"next pause after a missed phase", func() {
			sb.setDesired(&sandbox.State{Phase: sandbox.PhaseResuming, Seq: 5})
			sb.setDesired(&sandbox.State{Phase: sandbox.PhasePausing, Seq: 6})
		}, true},
	}
	for _, s := range steps {
		if s.do(); sb.pausing.suspended() != s.want {
			t.Errorf("%s: suspended is %v, want %v", s.name, !s.want, s.want)
		}
	}
}

// The end of a sandbox waits for the gateway that stores its workspace, not for one that has died, and not at
// all without a workspace.
func TestEndWaitsForUnmount(t *testing.T) {
	set := newSet(t, Config{})
	mounted := sandbox.State{ID: sandbox.NewID(), Phase: sandbox.PhaseStopping, Mount: sandbox.WorkspaceMount{Gateway: "g"}}
	stopped := func(sb *hostSandbox) bool {
		select {
		case <-sb.stop:
			return true
		default:
			return false
		}
	}
	if sb := set.newSandbox(&sandbox.State{ID: sandbox.NewID(), Phase: sandbox.PhaseStopping}); !stopped(sb) || sb.unmount != nil {
		t.Error("the end of a sandbox without a workspace waits")
	}
	sb := set.newSandbox(&mounted)
	if stopped(sb) {
		t.Error("the end does not wait")
	}
	unmounted := mounted
	unmounted.Seq, unmounted.Mount.Gateway = 1, ""
	if sb.setDesired(&unmounted); !stopped(sb) || sb.unmount.Stop() {
		t.Error("the end waits after the gateway has stored the workspace")
	}
	synctest.Test(t, func(t *testing.T) {
		begun, sb := time.Now(), set.newSandbox(&mounted)
		if <-sb.stop; time.Since(begun) != unmountTimeout {
			t.Errorf("the end waited %s for a gateway that has died", time.Since(begun))
		}
	})
}
