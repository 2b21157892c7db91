package agents

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// view has fixed processes.
type view []process.Summary

func (v *view) Processes(sbx sandbox.ID, keep func(*process.Summary) bool) (out []process.Summary) {
	for _, s := range *v {
		if (sbx == "" || s.ID.Sandbox() == sbx) && keep(&s) {
			out = append(out, s)
		}
	}
	return out
}

func (v *view) ActiveProcesses(sbx sandbox.ID, keep func(*process.Summary) bool) []process.Summary {
	return v.Processes(sbx, func(s *process.Summary) bool { return s.Exit == nil && keep(s) })
}

// add adds the agent of a sandbox.
func (v *view) add(sbx sandbox.ID, task bool, exit *process.Exit) {
	specs := bootstrap.StartAgent(bootstrap.Config{}, task)
	for i, spec := range specs {
		s := process.Summary{ID: process.NewID(sbx), Spec: spec, Exit: exit}
		if i < len(specs)-1 {
			s.Exit = exited(0)
		}
		*v = append(*v, s)
	}
}

func exited(code int32) *process.Exit { return &process.Exit{Code: &code} }

func TestStatus(t *testing.T) {
	for _, tt := range []struct {
		exit   *process.Exit
		state  State
		code   int32 // -1: none
		reason string
	}{
		{nil, Running, -1, ""},
		{exited(0), Completed, 0, ""},
		{exited(3), Failed, 3, ""},
		{&process.Exit{Signal: 9}, Failed, 137, ""},
		{&process.Exit{Cause: process.CauseHostLost}, Failed, -1, string(process.CauseHostLost)},
	} {
		var v view
		v.add("i1", true, tt.exit)
		a := New(Config{View: &v})
		st, ok := a.Status("i1")
		code := int32(-1)
		if st.Exit != nil {
			code = *st.Exit
		}
		if !ok || st.State != tt.state || code != tt.code || st.Error != tt.reason {
			t.Errorf("%+v: %+v with code %d", tt.exit, st, code)
		}
		if st, ok := a.Status("i2"); ok {
			t.Errorf("a sandbox without an agent: %+v", st)
		}
	}
}

// E-022, AMB-18, AMB-23: an agent with a task holds its sandbox as long as it runs. Processes of clients
// with its tag do not.
func TestHolds(t *testing.T) {
	var v view
	v.add("i1", true, nil)
	v.add("i2", false, nil)
	v.add("i3", true, exited(0))
	tag := bootstrap.AgentTag
	v = append(v, process.Summary{ID: process.NewID("i4"), Spec: process.Spec{Cmd: bootstrap.Program, Args: []string{bootstrap.Arg, "agent"}, Tag: &tag}})
	var now []sandbox.ID
	a := New(Config{View: &v, Hold: func(id sandbox.ID) (func(), bool) {
		now = append(now, id)
		return func() { now = slices.DeleteFunc(now, func(x sandbox.ID) bool { return x == id }) }, true
	}})
	held := make(map[sandbox.ID]func())
	for range 2 {
		a.hold(held)
		if !slices.Equal(now, []sandbox.ID{"i1"}) {
			t.Fatalf("held: %v", now)
		}
	}
	v = v[:0]
	if a.hold(held); len(now) != 0 || len(held) != 0 {
		t.Errorf("held after the end: %v", now)
	}
}

// source is a record that is read in batches of one event.
type source []process.Body

func (s *source) Next(context.Context, time.Duration) ([]process.Event, error) {
	if len(*s) == 0 {
		return nil, io.EOF
	}
	next := (*s)[0]
	*s = (*s)[1:]
	return []process.Event{{Body: next}}, nil
}

func (s *source) After() process.Seq { return 0 }

func (s *source) Close() {}

// processes start with the records of configurations, which succeed, and of an agent.
type processes struct {
	agent    source
	signaled []process.ID
}

func (ps *processes) Start(_ context.Context, _ core.Principal, sbx sandbox.ID, spec process.Spec, _ procs.StartOptions) (process.ID, stream.Source, error) {
	if _, agent := bootstrap.Agent(&spec); agent {
		return process.NewID(sbx), &ps.agent, nil
	}
	return process.NewID(sbx), &source{process.Accepted{}, process.Finished{Exit: *exited(0)}}, nil
}

func (ps *processes) Signal(_ context.Context, _ core.Principal, id process.ID, _ int32) error {
	ps.signaled = append(ps.signaled, id)
	return nil
}

// A start returns when the catalog has the agent, which its first event does not imply.
func TestStartWaitsForTheAgent(t *testing.T) {
	accepted, started, refused := process.Accepted{}, process.Started{}, process.Finished{Exit: process.Exit{Cause: process.CauseNotStarted}}
	for _, tt := range []struct {
		name   string
		record source
		left   int
		ok     bool
	}{
		{"it starts", source{accepted, started, process.Wrote{}}, 1, true},
		{"it is refused", source{accepted, process.Failed{}, refused}, 0, true},
		{"its record is cut", source{accepted}, 0, false},
	} {
		ps := &processes{agent: tt.record}
		err := New(Config{Processes: ps}).Start(t.Context(), core.Principal{}, "i1", bootstrap.Config{}, true)
		if (err == nil) != tt.ok || len(ps.agent) != tt.left {
			t.Errorf("%s: %v with %d events left, want %d", tt.name, err, len(ps.agent), tt.left)
		}
	}
}

// oldRecord is a record whose first events fell out of retention.
type oldRecord struct{ source }

func (*oldRecord) Next(context.Context, time.Duration) ([]process.Event, error) {
	return nil, kind.New(kind.Gone, "read", "", "it fell out of retention")
}

// oldAgent is the agent of a repeated start whose record is an oldRecord.
type oldAgent struct{ processes }

func (o *oldAgent) Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt procs.StartOptions) (process.ID, stream.Source, error) {
	id, src, err := o.processes.Start(ctx, p, sbx, spec, opt)
	if _, agent := bootstrap.Agent(&spec); agent {
		src = &oldRecord{}
	}
	return id, src, err
}

// A start that is repeated after the beginning of the agent's record fell out of retention succeeds.
func TestStartFindsAnOldAgent(t *testing.T) {
	a := New(Config{Processes: &oldAgent{}})
	if err := a.Start(t.Context(), core.Principal{}, "i1", bootstrap.Config{}, true); err != nil {
		t.Error(err)
	}
}

// A cancel finds an agent that another request has just started.
func TestCancelSynchronizes(t *testing.T) {
	var v view
	ps := &processes{}
	a := New(Config{Processes: ps, View: &v, Sync: func(context.Context) error {
		v.add("i1", true, nil)
		return nil
	}})
	if err := a.Cancel(t.Context(), core.Principal{}, "i1"); err != nil || len(ps.signaled) != 1 || ps.signaled[0] != v[len(v)-1].ID {
		t.Errorf("%v, signaled %v", err, ps.signaled)
	}
}
