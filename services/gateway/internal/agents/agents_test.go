package agents

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
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
