package builder

import (
	"context"
	"strings"
	"testing"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/core/coretest"
	"github.com/millrace/millrace/services/gateway/internal/operations"
)

// fixture is the fixture for runs of a build that has reached its start command.
type fixture struct {
	*operations.Operations
	t         *testing.T
	log       *events.Log
	principal core.Principal
	view      *catalog.View
	host      *coretest.Host // not started
	from      origin
	state     build.State
	next      func(build.State) *run
}

func newFixture(t *testing.T, start, ready string) *fixture {
	t.Helper()
	log := eventstest.Open(t, eventstest.Start(t))
	f := &fixture{t: t, log: log, view: eventstest.View(t, log)}
	f.host = coretest.New(t, log, f.view)
	f.Operations, f.principal, f.next = newRunsOn(t, log)
	f.state = startBuild(t, f.Operations, f.principal, build.Spec{Template: template.Base, Start: start, Ready: ready})
	f.from = origin{template: template.Base, settings: settings{start: start, ready: ready}}
	return f
}

// newRun starts another run of the build.
func (f *fixture) newRun() *run {
	f.t.Helper()
	return f.next(reload(f.t, f.Operations, f.principal, &f.state))
}

// sandboxID returns the id of the sandbox in which the start command runs.
func (f *fixture) sandboxID(r *run) sandbox.ID { return sandbox.KeyedID(r.layers.key("sandbox.0", 1)) }

func (f *fixture) starts(r *run) int {
	return f.host.Starts(process.KeyedID(f.sandboxID(r), "millrace.start"))
}

// A gateway that shuts down while the sandbox is created leaves it to its successor.
func TestTakeoverRunsTheStartCommand(t *testing.T) {
	f := newFixture(t, "sleep", "")
	first := f.newRun()
	sbx := f.sandboxID(first)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- first.finalize(ctx, f.from) }()
	_, err := f.view.AwaitSandbox(t.Context(), sbx, func(s *sandbox.State) bool { return s.Phase == sandbox.PhaseRequested })
	if err == nil {
		_, err = f.Lifecycle.Lookup(t.Context(), f.principal, sbx) // the gateway's view has it, too
	}
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the first run executed the command without a host")
	}
	f.host.Start()
	second := f.newRun()
	if err := second.finalize(t.Context(), f.from); err != nil || f.starts(second) != 1 {
		t.Errorf("next run: %v, the command was started %d times", err, f.starts(second))
	}
}

// The successor does not run the start command again.
func TestStartCommandRunsOnce(t *testing.T) {
	f := newFixture(t, "sleep", "true")
	f.host.Start()
	for range 2 {
		r := f.newRun()
		if err := r.finalize(t.Context(), f.from); err != nil || f.starts(r) != 1 {
			t.Errorf("%v, the command was started %d times", err, f.starts(r))
		}
	}
}

// If a run dies before it records that the start command failed, the next run does.
func TestFailedStartCommandFailsTheNextRun(t *testing.T) {
	f := newFixture(t, "fail", "fail")
	f.host.Start()
	for range 2 {
		if err := f.newRun().finalize(t.Context(), f.from); !kind.Is(err, kind.Precondition) {
			t.Errorf("%v, want a failed command", err)
		}
	}
}

// If a run dies before it records that a step failed, the next run does.
func TestFailedStepFailsTheNextRun(t *testing.T) {
	f := newFixture(t, "", "")
	f.host.Start()
	l := layer{step: 1, do: &build.Step{Type: build.Run, Args: []string{"fail"}}}
	for range 2 {
		r := f.newRun()
		if _, err := r.layers.make(t.Context(), f.from, &l); !kind.Is(err, kind.Precondition) || !strings.HasPrefix(kind.Message(err), "failed to run command 'fail': ") {
			t.Errorf("%v, want a failed command", err)
		}
	}
}

// The end of its sandbox does not mean that the start command ran.
func TestEndedSandboxDoesNotCountAsRun(t *testing.T) {
	for name, ran := range map[string]bool{"that never ran": false, "that ran": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "sleep", "true")
			r := f.newRun()
			if ran {
				f.host.Start()
				if _, err := f.Provisioner.EnsureSandbox(t.Context(), f.principal, f.sandboxID(r), r.layers.requested(f.from, f.from.settings)); err != nil {
					t.Fatal(err)
				}
			} else if _, err := f.view.CreateSandbox(t.Context(), f.principal.Tenant, f.sandboxID(r), r.layers.requested(f.from, f.from.settings)); err != nil {
				t.Fatal(err)
			}
			if err := f.Core.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.Lifecycle.EndSandboxes(t.Context(), f.principal, func(*sandbox.State) bool { return true })
			if _, err := f.view.AwaitSandbox(t.Context(), f.sandboxID(r), (*sandbox.State).Over); err != nil {
				t.Fatal(err)
			}
			if err := r.finalize(t.Context(), f.from); err == nil {
				t.Error("the build continues as if its command had run")
			}
		})
	}
}

// Deleting a build ends its known sandboxes; its owner may create another before it sees
// the deletion.
func TestDeletedBuildLeavesNoSandbox(t *testing.T) {
	f := newFixture(t, "sleep", "")
	f.host.Start()
	r := f.newRun()
	if err := f.Templates.DeleteTemplate(t.Context(), f.principal, f.state.Request.Name); err != nil {
		t.Fatal(err)
	}
	id, err := r.layers.sandbox(t.Context(), f.from, f.from.settings, 1)
	if err != nil {
		t.Fatal(err)
	}
	r.end(t.Context(), errFenced, nil)
	if st, err := f.Lifecycle.Lookup(t.Context(), f.principal, id); err != nil || st.IsRunning() {
		t.Errorf("sandbox is %s, %v", st.Phase, err)
	}
}

// A run that lost its claim leaves the sandboxes to the new owner.
func TestTakenOverBuildKeepsItsSandbox(t *testing.T) {
	f := newFixture(t, "sleep", "")
	f.host.Start()
	r := f.newRun()
	id, err := r.layers.sandbox(t.Context(), f.from, f.from.settings, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.newRun()
	r.end(t.Context(), nil, nil)
	if st, err := f.Lifecycle.Lookup(t.Context(), f.principal, id); err != nil || !st.IsRunning() {
		t.Errorf("sandbox is %s, %v", st.Phase, err)
	}
}
