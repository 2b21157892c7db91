package bootstrap_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/bootstrap"
)

func environ(env map[string]string) []string {
	list := []string{"PATH=/bin"}
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	return list
}

// The platform's values take precedence, and no value is a variable of the process itself.
func TestConfigurationTravelsInPrefixedVariables(t *testing.T) {
	c := bootstrap.Config{
		Secrets:  map[string]string{"LLM_API_KEY": "k", "PATH": "/evil", "SESSION_ID": "theirs"},
		Platform: map[string]string{"SESSION_ID": "ours"},
	}
	specs := bootstrap.Start(c, "g1")
	if len(specs) != 1 {
		t.Fatalf("%d processes", len(specs))
	}
	spec := specs[0]
	if spec.Tag == nil || *spec.Tag != "runtime" || !spec.Stdin || spec.PTY != nil {
		t.Errorf("got %+v", spec)
	}
	if err := spec.Validate(); err != nil {
		t.Error(err)
	}
	if _, ok := spec.Env["PATH"]; ok {
		t.Error("a secret is a variable of the runtime itself")
	}
	values, others := bootstrap.Parse(environ(spec.Env))
	want := map[string]string{"LLM_API_KEY": "k", "PATH": "/evil", "SESSION_ID": "ours"}
	if !maps.Equal(values, want) || len(others) != 1 || others[0] != "PATH=/bin" {
		t.Errorf("got %v and %v", values, others)
	}
	if r, ok := bootstrap.ParseRole(spec.Args[1:]); !ok || !r.Runtime || !r.Write {
		t.Errorf("role %+v, %v", r, ok)
	}
}

// A configuration that no command can carry is divided, and nothing of it is lost.
func TestLargeConfigurationsAreDivided(t *testing.T) {
	c := bootstrap.Config{Secrets: map[string]string{}, Platform: map[string]string{"SESSION_ID": "s"}}
	for i := range 50 {
		c.Secrets["KEY_"+strings.Repeat("x", i)] = strings.Repeat("v", 64<<10)
	}
	specs := bootstrap.Start(c, "1-2")
	if n := len(specs); n < 7 || n > 10 {
		t.Fatalf("%d processes", n)
	}
	got := map[string]string{}
	for i, spec := range specs {
		if err := spec.Validate(); err != nil {
			t.Error(err)
		}
		role, ok := bootstrap.ParseRole(spec.Args[1:])
		if last := i == len(specs)-1; !ok || role.Runtime != last || role.Write == last {
			t.Errorf("process %d: %+v, %v", i, role, ok)
		} else if !last && (role.Set != "1-2" || role.Part != i+1 || role.Of != len(specs)-1) {
			t.Errorf("process %d: %+v", i, role)
		}
		values, _ := bootstrap.Parse(environ(spec.Env))
		maps.Copy(got, values)
	}
	if !maps.Equal(got, c.Values()) {
		t.Errorf("got %d values, want %d", len(got), len(c.Values()))
	}
}

func TestRolesOfOtherArgumentsAreRejected(t *testing.T) {
	for _, args := range []string{"x", "config", "config s 1", "config ../s 1 1", "config s 0 1", "config s 2 1", "config s a 1", "configured x"} {
		if r, ok := bootstrap.ParseRole(strings.Fields(args)); ok {
			t.Errorf("%q: %+v", args, r)
		}
	}
}
