package hostd

import (
	"testing"

	"github.com/millrace/millrace/events/process"
)

// An exact start has the environment and the argv[0] of its request, whatever its sandbox has,
// and one that cannot be executed has no process.
func TestExactStarts(t *testing.T) {
	r := hostOf(t, "namespace")
	sbx := r.sandbox() // with a variable of its own
	name := "other"
	for want, spec := range map[string]process.Spec{
		"OWN=1\n": {Cmd: "env", Env: map[string]string{"OWN": "1"}, Exact: true},
		"other\n": {Cmd: "/bin/sh", Args: []string{"-c", "echo $0"}, Arg0: &name, Exact: true},
	} {
		rec := r.whole(r.start(sbx, spec))
		if got := string(rec.out[process.Stdout]); got != want || describe(rec.end()) != "exited 0" {
			t.Errorf("got %q, %s; want %q", got, describe(rec.end()), want)
		}
	}
	rec := r.whole(r.start(sbx, process.Spec{Cmd: "/no/such/program", Exact: true}))
	if got, want := rec.types(), "accepted error end "; got != want {
		t.Errorf("got the events %q, want %q", got, want)
	}
	for _, e := range rec.events {
		if f, ok := e.Body.(process.Failed); ok && f.Message != `cannot run "/no/such/program": no such file or directory` {
			t.Errorf("got %q", f.Message)
		}
	}
}
