package build_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/kind"
)

func TestIDs(t *testing.T) {
	id := build.NewID()
	if got, err := build.ParseID(string(id)); err != nil || got != id {
		t.Errorf("%s: %s, %v", id, got, err)
	}
	for _, s := range []string{"", "x", string(id)[1:], strings.ToUpper("a" + string(id)[1:]), strings.ReplaceAll(string(id), "-", "."), string(id) + "-"} {
		if _, err := build.ParseID(s); !kind.Is(err, kind.NotFound) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestInvalidSpecs(t *testing.T) {
	sum := strings.Repeat("a", 64)
	ok := build.Spec{Image: "x", Steps: []build.Step{
		{Type: build.Copy, Args: []string{"a", "b", "", ""}, Files: sum}, {Type: build.Run, Args: []string{"true", "root"}},
		{Type: build.Env, Args: []string{"A", "1", "B", ""}}, {Type: build.Workdir, Args: []string{"/x"}}, {Type: build.User, Args: []string{"root"}},
	}}
	if err := ok.Check(); err != nil {
		t.Error(err)
	}
	step := func(s build.Step) build.Spec { return build.Spec{Image: "x", Steps: []build.Step{s}} }
	for name, s := range map[string]build.Spec{
		"of nothing":                 {},
		"of two":                     {Image: "x", Template: "y"},
		"a NUL in the start command": {Image: "x", Start: "a\x00"},
		"too many steps":             {Image: "x", Steps: make([]build.Step, build.MaxSteps+1)},
		"an unknown step":            step(build.Step{Type: "ADD", Args: []string{"a", "b"}}),
		"a command of nothing":       step(build.Step{Type: build.Run, Args: []string{""}}),
		"no command":                 step(build.Step{Type: build.Run}),
		"a variable without a value": step(build.Step{Type: build.Env, Args: []string{"A"}}),
		"a variable with no name":    step(build.Step{Type: build.Env, Args: []string{"A", "1", "", "2"}}),
		"a variable with two values": step(build.Step{Type: build.Env, Args: []string{"A=1", "2"}}),
		"a long argument":            step(build.Step{Type: build.Run, Args: []string{strings.Repeat("x", build.MaxText+1)}}),
		"a copy of nothing":          step(build.Step{Type: build.Copy, Args: []string{"a", "b"}}),
		"a copy of a path":           step(build.Step{Type: build.Copy, Args: []string{"a", "b"}, Files: "../" + sum[3:]}),
		"a copy with no destination": step(build.Step{Type: build.Copy, Args: []string{"a"}, Files: sum}),
		"a directory with two paths": step(build.Step{Type: build.Workdir, Args: []string{"a", "b"}}),
	} {
		if err := s.Check(); !kind.Is(err, kind.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStateMachine(t *testing.T) {
	bodies := []build.Body{build.Requested{}, build.Started{}, build.Claimed{By: "a"}, build.Logged{Lines: make([]build.Line, 2), Mark: build.Mark{Step: 1}}, build.Finished{}, build.Failed{Step: "1"}, build.Deleted{}, build.Based{}}
	tests := []struct {
		from build.Phase
		ok   string // the bodies that may follow, by their number
		to   []build.Phase
	}{
		{build.PhaseNone, "0", []build.Phase{build.PhaseWaiting}},
		{build.PhaseWaiting, "156", []build.Phase{build.PhaseBuilding, build.PhaseError, build.PhaseDeleted}},
		{build.PhaseBuilding, "234567", []build.Phase{build.PhaseBuilding, build.PhaseBuilding, build.PhaseReady, build.PhaseError, build.PhaseDeleted, build.PhaseBuilding}},
		{build.PhaseReady, "6", []build.Phase{build.PhaseDeleted}},
		{build.PhaseError, "6", []build.Phase{build.PhaseDeleted}},
		{build.PhaseDeleted, "", nil},
	}
	for _, tt := range tests {
		for i, b := range bodies {
			s := build.State{Phase: tt.from, Lines: 1}
			got, err := s.Apply(build.Event{Seq: 3, Body: b})
			at := strings.IndexByte(tt.ok, byte('0'+i))
			switch {
			case (err == nil) != (at >= 0):
				t.Errorf("%T after %q: %v", b, tt.from, err)
			case err == nil && (got.Phase != tt.to[at] || got.Seq != 3):
				t.Errorf("%T after %q: %+v", b, tt.from, got)
			}
			if _, logged := b.(build.Logged); logged && err == nil && (got.Lines != 3 || got.Mark.Step != 1) {
				t.Errorf("logged: %+v", got)
			}
		}
	}
}
