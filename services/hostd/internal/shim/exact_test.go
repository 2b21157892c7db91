package shim_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/events/process"
)

func TestExactStarts(t *testing.T) {
	h := newHost(t, first(startShim(t)))
	h.env = map[string]string{"OF_THE_SANDBOX": "1", "BOTH": "sandbox"}
	h.connect()
	name, none := "other", ""
	own := map[string]string{"BOTH": "request", "OWN": "a b"}
	tests := []struct {
		name, stdout string
		spec         process.Spec
	}{
		{"the environment is the request's", "BOTH=request\nOWN=a b\n", process.Spec{Cmd: "env", Env: own, Exact: true}},
		{"no variable at all", "", process.Spec{Cmd: "env", Exact: true}},
		{"the request's PATH finds the program", "PATH=/nowhere:/usr/bin:/bin\n", process.Spec{Cmd: "env", Env: map[string]string{"PATH": "/nowhere:/usr/bin:/bin"}, Exact: true}},
		{"argv[0]", "other\n", process.Spec{Cmd: "/bin/sh", Args: []string{"-c", "echo $0"}, Arg0: &name, Exact: true}},
		{"an empty argv[0]", "\n", process.Spec{Cmd: "/bin/sh", Args: []string{"-c", "echo $0"}, Arg0: &none, Exact: true}},
		{"argv[0] of an ordinary start", "other\n", process.Spec{Cmd: "/bin/sh", Args: []string{"-c", "echo $0"}, Arg0: &name}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := h.awaitEnd(h.start(tt.spec))
			if got := string(p.out[process.Stdout]); got != tt.stdout || describe(p.end) != "exited 0" {
				t.Errorf("got %q, %s; want %q", got, describe(p.end), tt.stdout)
			}
		})
	}
}

func first[T, U any](v T, _ U) T { return v }

// An exact start has no shell that would report a program that cannot be executed.
func TestExactStartsOfWhatCannotBeExecuted(t *testing.T) {
	h, name := connected(t), "other"
	for _, tt := range []struct {
		name, want string
		spec       process.Spec
	}{
		{"missing", `cannot run "no-such-program-anywhere": no such file or directory`, process.Spec{Cmd: "no-such-program-anywhere", Exact: true}},
		{"missing, with argv[0]", `cannot run "/no/such/program": no such file or directory`, process.Spec{Cmd: "/no/such/program", Arg0: &name, Exact: true}},
		{"not executable", `cannot run "/etc/passwd": permission denied`, process.Spec{Cmd: "/etc/passwd", Exact: true}},
		{"a directory", `cannot run "/etc": permission denied`, process.Spec{Cmd: "/etc", Exact: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := h.awaitEnd(h.start(tt.spec))
			if f, ok := p.events[0].Body.(process.Failed); !ok || f.Message != tt.want || p.end.Cause != process.CauseNotStarted || len(p.events) != 2 {
				t.Errorf("got %+v, want %q", p.events, tt.want)
			}
		})
	}
	t.Run("an ordinary start with argv[0]", func(t *testing.T) {
		p := h.awaitEnd(h.start(process.Spec{Cmd: "/no/such/program", Arg0: &name}))
		if got := string(p.out[process.Stderr]); describe(p.end) != "exited 127" || !strings.Contains(got, "/no/such/program") {
			t.Errorf("got %q, %s", got, describe(p.end))
		}
	})
}
