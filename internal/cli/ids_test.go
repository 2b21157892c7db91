package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/clitest"
	"github.com/millrace/millrace/internal/cli/command"
)

// A unique prefix stands for an id, and full ids are used without a list.
func TestIDsMayBePrefixes(t *testing.T) {
	for _, tt := range []struct {
		args  string
		say   string
		lists int
	}{
		{"kill " + clitest.ProcessID, "", 0},
		{"kill 01h", "", 1},
		{"kill 0", `process id "0" is ambiguous`, 1},
		{"kill 9", "process not found", 1},
		{"attach -n 01h", "", 1},
		{"logs -f 01h", "", 1},
		{"run -n -s iabc x", "", 0},
		{"run -n -s ia x", "", 1},
		{"run -n -s ien x", "sandbox not found", 1}, // an ended sandbox
		{"sandbox exec -n ia -- x y", "", 1},
		{"sandbox show ien", "", 1},
		{"sandbox show i", `sandbox id "i" is ambiguous`, 1},
	} {
		g := newFakeGateway(t, end(`{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)...)
		got := g.verb(nil, strings.Fields(tt.args)...)
		said := got.say + got.errOut
		if (tt.say == "") != (got.code == 0) || !strings.Contains(said, tt.say) || g.Lists != tt.lists {
			t.Errorf("%s: exit %d %q with %d lists; want %q with %d", tt.args, got.code, said, g.Lists, tt.say, tt.lists)
		}
		if strings.Contains(tt.say, "ambiguous") && !strings.Contains(said, "\n  0") && !strings.Contains(said, "\n  iend") {
			t.Errorf("%s: no candidates in %q", tt.args, said)
		}
	}
}

func TestIDsComplete(t *testing.T) {
	g := newFakeGateway(t)
	for args, want := range map[string][]string{
		"sandbox rm i": {"i1", "i3", "i2", "iabc"}, "sandbox show ie": {"iend"}, "kill 01": {clitest.ProcessID}, "logs 0": {clitest.ProcessID, "02-iabc"},
		"key rm a": {"aa"}, "host drain l": {"local"}, "run -s ia": {"iabc"}, "logs " + clitest.ProcessID + " 0": nil,
	} {
		got := g.completions(strings.Fields(args)...)
		if !slices.Equal(got, want) {
			t.Errorf("%s completes to %q; want %q", args, got, want)
		}
	}
}

// completions returns the shell completions for the last of args.
func (g *fakeGateway) completions(args ...string) []string {
	g.t.Helper()
	root := &cobra.Command{Use: "millrace"}
	env := map[string]string{"MILLRACE_URL": g.Server.URL, "MILLRACE_API_KEY": "e2b_00"}
	root.AddCommand(Commands(command.Config{LookupEnv: func(k string) (v string, ok bool) { v, ok = env[k]; return }})...)
	var out, errOut syncBuffer
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, args...))
	if err := root.ExecuteContext(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	var ids []string
	for l := range strings.Lines(out.String()) {
		if id, _, _ := strings.Cut(strings.TrimSpace(l), "\t"); !strings.HasPrefix(id, ":") {
			ids = append(ids, id)
		}
	}
	return ids
}
