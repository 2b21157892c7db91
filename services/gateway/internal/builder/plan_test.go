package builder

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

// plainKeys implements Keys without a secret.
type plainKeys struct{}

func (plainKeys) DeriveKey(text string) string { return string(template.SumOf([]byte(text))) }

func TestPlan(t *testing.T) {
	spec := build.Spec{Steps: []build.Step{
		{Type: build.Env, Args: []string{"A", "1", "B", "$A-${A}-$C-$"}},
		{Type: build.Workdir, Args: []string{"/app"}},
		{Type: build.User, Args: []string{"root:root"}},
		{Type: build.Workdir, Args: []string{"sub"}},
		{Type: build.Run, Args: []string{"make"}},
		{Type: build.Env, Args: []string{"PATH", "/x:$PATH"}, Force: true},
		{Type: build.Copy, Args: []string{"a", "b"}, Files: "f"},
		{Type: build.Workdir, Args: []string{"/end"}},
		{Type: build.User, Args: []string{"other"}},
	}, Start: "serve"}
	layers, after, err := plan(&origin{settings: settings{start: "old", ready: "old ready", user: "u"}, sum: "base"}, &spec, plainKeys{})
	if err != nil || len(layers) != 3 {
		t.Fatalf("%d layers: %+v, %v", len(layers), layers, err)
	}
	run, cp, end := layers[0], layers[1], layers[2]
	if run.step != 5 || run.force || run.user != "root" || run.workdir != "/app/sub" || run.env["B"] != "1-1-$C-$" {
		t.Errorf("run: %+v", run)
	}
	if len(run.dirs) != 2 || run.dirs[0] != (directory{"/app", "u", 2}) || run.dirs[1] != (directory{"/app/sub", "root", 4}) {
		t.Errorf("directories: %+v", run.dirs)
	}
	if !cp.force || cp.step != 7 || len(cp.dirs) != 0 || cp.env["PATH"] != "/x:"+searchPath || run.env["PATH"] != "" {
		t.Errorf("copy: %+v", cp)
	}
	if end.do != nil || end.step != 9 || !slices.Equal(end.dirs, []directory{{"/end", "root", 8}, {"", "other", 9}}) {
		t.Errorf("end: %+v", end)
	}
	if after.start != "serve" || after.ready != "" || after.workdir != "/end" {
		t.Errorf("after: %+v", after)
	}
	if _, kept, _ := plan(&origin{settings: settings{start: "old", ready: "old ready"}, sum: "base"}, &build.Spec{}, plainKeys{}); kept.start != "old" || kept.ready != "old ready" {
		t.Errorf("start command of the base: %+v", kept)
	}
}

// Two layers have the same sum only if everything below them is the same.
func TestSums(t *testing.T) {
	run := func(base string, steps ...build.Step) string {
		layers, _, _ := plan(&origin{sum: base}, &build.Spec{Steps: append(steps, build.Step{Type: build.Run, Args: []string{"x"}})}, plainKeys{})
		return layers[len(layers)-1].sum
	}
	seen := map[string]string{}
	for name, sum := range map[string]string{
		"plain":               run("a"),
		"another base":        run("b"),
		"a variable":          run("a", build.Step{Type: build.Env, Args: []string{"A", "1"}}),
		"another value":       run("a", build.Step{Type: build.Env, Args: []string{"A", "2"}}),
		"a user":              run("a", build.Step{Type: build.User, Args: []string{"A"}}),
		"a copy":              run("a", build.Step{Type: build.Copy, Args: []string{"a", "b"}, Files: "1"}),
		"other files":         run("a", build.Step{Type: build.Copy, Args: []string{"a", "b"}, Files: "2"}),
		"another destination": run("a", build.Step{Type: build.Copy, Args: []string{"a", "c"}, Files: "2"}),
	} {
		if other, ok := seen[sum]; ok {
			t.Errorf("%s and %s have the same sum", name, other)
		}
		seen[sum] = name
	}
	if first, again := run("a"), run("a"); first != again || run("a", build.Step{Type: build.User, Args: []string{"u"}, Force: true}) != run("a", build.Step{Type: build.User, Args: []string{"u"}}) {
		t.Error("equal steps have different sums")
	}
}

func TestExpand(t *testing.T) {
	env := map[string]string{"A": "1", "LONG_2": "$A"}
	for in, want := range map[string]string{
		"": "", "$": "$", "$$A": "$1", "${A}b": "1b", "$Ab": "$Ab", "${": "${", "${}": "${}", "$LONG_2": "$A", "a$A$": "a1$", "$1": "$1", "$PATH": searchPath,
	} {
		if got, err := expand(in, maps.Clone(env), 100); got != want || err != nil {
			t.Errorf("%q is %q, %v; want %q", in, got, err, want)
		}
	}
}

// A few bytes can refer to any amount of variables: their size is checked before they are
// expanded.
func TestVariablesAreBounded(t *testing.T) {
	env := func(pairs ...string) build.Step { return build.Step{Type: build.Env, Args: pairs} }
	var many []string
	for i := range maxVariables + 1 {
		many = append(many, strconv.Itoa(i), "")
	}
	long := strings.Repeat("x", 1<<16)
	for name, steps := range map[string][]build.Step{
		"one that grows": {env("A", "x"), env("B", "${A}"), env("A", long), env("A", strings.Repeat("$A", 1<<16))},
		"nested ones":    {env("A", long, "B", "$A$A$A", "C", "$B$B$B$B")},
		"many":           {env(many...)},
		"many long ones": {env("A", long, "B", "$A", "C", "$A", "D", "$A", "E", "$A")},
		"in a directory": {env("A", long), {Type: build.Workdir, Args: []string{"/" + strings.Repeat("$A", 1<<10)}}},
	} {
		_, _, err := plan(&origin{sum: "base"}, &build.Spec{Steps: steps}, plainKeys{})
		if !kind.Is(err, kind.Invalid) || stepOf(err) != strconv.Itoa(len(steps)) {
			t.Errorf("%s: %v, want an error of the last step", name, err)
		}
	}
	again := []build.Step{env("A", long, "B", long, "C", long), env("A", "$A", "B", long, "C", "$A")}
	if _, after, err := plan(&origin{sum: "base"}, &build.Spec{Steps: again}, plainKeys{}); err != nil || after.env["C"] != long {
		t.Errorf("only the last value of a variable counts: %v", err)
	}
}
