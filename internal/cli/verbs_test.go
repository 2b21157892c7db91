package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/cli/clitest"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
)

func TestLogsPrintTheRecord(t *testing.T) {
	g := newFakeGateway(t, short...)
	got := g.verb(nil, "logs", clitest.ProcessID)
	if got.code != 0 || got.out != "a\n\xff\x00" || got.errOut != "oops\n" {
		t.Errorf("exit %d %s, stdout %q, stderr %q", got.code, got.say, got.out, got.errOut)
	}
	got = g.verb(nil, "logs", "--json", clitest.ProcessID)
	if n := strings.Count(got.out, "\n"); n != len(short) || !strings.Contains(got.out, `"seq":6`) {
		t.Errorf("%d lines of JSON of %d: %s", n, len(short), got.out)
	}
	for l := range strings.Lines(got.out) {
		if !json.Valid([]byte(l)) {
			t.Errorf("not JSON: %s", l)
		}
	}
	if got = g.verb(nil, "logs", "--since", "2026-01-02T03:04:06Z", clitest.ProcessID); got.out != "" {
		t.Errorf("older than --since: %q", got.out)
	}
	if got = g.verb(nil, "logs", "--after", "4", clitest.ProcessID); got.out != "\xff\x00" {
		t.Errorf("after 4: %q", got.out)
	}
}

// If retention deleted a record's beginning, logs starts at the first event kept and
// reports that. --after a deleted event is an error.
func TestLogsStartAtTheFirstEventKept(t *testing.T) {
	g := newFakeGateway(t, short...)
	g.First = 5
	g.Grow(`{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)
	for _, args := range [][]string{{"logs", clitest.ProcessID}, {"logs", "-f", clitest.ProcessID}} {
		if got := g.verb(nil, args...); got.out != "\xff\x00" || !strings.Contains(got.errOut, "events 1 to 4 were deleted") {
			t.Errorf("%v: exit %d %s, stdout %q, stderr %q", args, got.code, got.say, got.out, got.errOut)
		}
	}
	if got := g.verb(nil, "logs", "--after", "2", clitest.ProcessID); got.out != "" || !strings.Contains(got.say, "retention has passed") {
		t.Errorf("after 2: %q, stdout %q", got.say, got.out)
	}
}

func TestLogsFollowToTheEnd(t *testing.T) {
	g := newFakeGateway(t, short[:3]...)
	g.CutAfter[2] = true
	go g.Grow(`{"type":"stdout","offset":2,"data":"b\n"}`, `{"type":"end","exit_code":4,"signal":null,"cause":"exited"}`)
	if got := g.verb(nil, "logs", "-f", clitest.ProcessID); got.code != 0 || got.out != "a\nb\n" {
		t.Errorf("exit %d %s, stdout %q", got.code, got.say, got.out)
	}
}

// A broken tail resumes; events that arrive twice are written once.
func TestTailWritesEachEventOnce(t *testing.T) {
	g := newFakeGateway(t, short...)
	g.CutAfter[4] = true
	got := g.verb(nil, "events", "tail", "--json")
	if n := strings.Count(got.out, "\n"); n != len(short) || got.say != "enough" {
		t.Errorf("%d lines of %d, %q:\n%s", n, len(short), got.say, got.out)
	}
	if len(g.Afters) != 2 || g.Afters[0] != "now" || g.Afters[1] != "2026-01-02T03:03:58Z" {
		t.Errorf("requested events after %q", g.Afters)
	}
	got = g.verb(nil, "events", "tail", "--no-follow")
	if n := strings.Count(got.out, "\n"); n != len(short) || got.code != 0 || !strings.Contains(got.out, "stdout") || strings.Contains(got.out, "\x1b") {
		t.Errorf("exit %d, %d lines:\n%s", got.code, n, got.out)
	}
}

func TestListsAsTableAndAsJSON(t *testing.T) {
	g := newFakeGateway(t)
	tests := []struct {
		args    []string
		has     []string
		hasNot  string
		entries int
	}{
		{[]string{"ps"}, []string{"PROCESS", clitest.ProcessID, "running", "sleep 9"}, "02-iabc", 1},
		{[]string{"ps", "--all"}, []string{"02-iabc", "exited 3"}, "\x1b", 2},
		{[]string{"sandbox", "ls"}, []string{"i1", "i2", "ba", "standard", "fedcba987654 "}, "\x1b", 4},
		{[]string{"sandbox", "ls"}, []string{"standard"}, "0123456789abcdef", 4},
		{[]string{"sandbox", "ls"}, []string{"paused"}, "iend", 4},
		{[]string{"sandbox", "ls", "--all"}, []string{"iend", "ended, lost"}, "\x1b", 5},
		{[]string{"hosts"}, []string{"local", "alive", "1/9", "direct"}, "\x1b", 1},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			got := g.verb(nil, tt.args...)
			for _, want := range tt.has {
				if !strings.Contains(got.out, want) {
					t.Errorf("no %q in\n%s%s", want, got.out, got.say)
				}
			}
			if strings.Contains(got.out, tt.hasNot) {
				t.Errorf("%q in\n%s", tt.hasNot, got.out)
			}
			var all []map[string]any
			got = g.verb(nil, append(tt.args, "-o", "json")...)
			if err := json.Unmarshal([]byte(got.out), &all); err != nil || len(all) != tt.entries {
				t.Errorf("JSON of %d entries, %v:\n%s", len(all), err, got.out)
			}
		})
	}
}

func TestKillSendsTheSignal(t *testing.T) {
	g := newFakeGateway(t)
	for _, name := range []string{"TERM", "sigterm", "15"} {
		if got := g.verb(nil, "kill", "-s", name, clitest.ProcessID); got.code != 0 || got.out != "" {
			t.Errorf("exit %d %s", got.code, got.say)
		}
	}
	g.verb(nil, "kill", clitest.ProcessID)
	if len(g.Signals) != 4 || g.Signals[0] != 15 || g.Signals[1] != 15 || g.Signals[2] != 15 || g.Signals[3] != 9 {
		t.Errorf("signals %v", g.Signals)
	}
	if got := g.verb(nil, "kill", "-s", "NOPE", clitest.ProcessID); got.code != 1 {
		t.Errorf("exit %d for an invalid signal", got.code)
	}
}

func TestSandboxCreateAndRemove(t *testing.T) {
	g := newFakeGateway(t)
	if got := g.verb(nil, "sandbox", "create", "-m", "a=b"); got.out != "iabc\n" {
		t.Errorf("create printed %q %s", got.out, got.say)
	}
	if got := g.verb(nil, "sandbox", "rm", "iabc", "i2"); got.code != 0 || len(g.Removed) != 2 {
		t.Errorf("exit %d, removed %v", got.code, g.Removed)
	}
}

// An empty id, as from an unset variable of a script, is rejected before any request is
// sent, also for the other arguments.
func TestInvalidIDsAreRejectedLocally(t *testing.T) {
	env := map[string]string{"MILLRACE_URL": "http://127.0.0.1:1", "MILLRACE_API_KEY": "k"} // nothing listens there
	for args, code := range map[string]int{
		"sandbox rm": 1, "sandbox rm i1": 1, "sandbox pause": 1, "sandbox resume": 1, "sandbox snapshot": 1, "sandbox fork": 1, "snapshot rm": 1,
		"logs": 1, "kill": 1, "attach": output.ExitMillrace, "host undrainable": 1, "host drain": 1, "host undrain": 1, "key rm": 1, "template show": 1, "template rm": 1,
	} {
		for _, id := range []string{"", ".."} {
			if got := verb(t, env, nil, append(strings.Fields(args), id)...); got.code != code || !strings.Contains(got.say, "is not a valid id or name") || got.errOut != "" {
				t.Errorf("%s %q: exit %d %q %q", args, id, got.code, got.say, got.errOut)
			}
		}
	}
	for _, n := range []string{"NaN", "Inf", "-1"} {
		if got := verb(t, env, nil, "sandbox", "create", "--cpus", n); got.code != 1 || !strings.HasPrefix(got.say, "--cpus ") {
			t.Errorf("--cpus %s: exit %d %q", n, got.code, got.say)
		}
	}
}

func TestDoctorChecksTheGateway(t *testing.T) {
	g := newFakeGateway(t)
	got := g.verb(nil, "doctor", "-o", "json")
	var h struct {
		Checks []struct {
			Name string
			OK   bool
		}
		Hosts []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(got.out), &h); err != nil {
		t.Fatalf("%v: %s", err, got.out)
	}
	ok := map[string]bool{}
	for _, c := range h.Checks {
		ok[c.Name] = c.OK
	}
	if !ok["gateway"] || !ok["nats"] || !ok["hosts"] || len(h.Hosts) != 1 {
		t.Errorf("checks %+v", h.Checks)
	}
}

func TestLocalUpIsFound(t *testing.T) {
	g := newFakeGateway(t, short...)
	dir := t.TempDir()
	for name, text := range map[string]string{command.KeyFile: "e2b_00\n", command.AddressFile: g.Server.URL + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := verb(t, map[string]string{"MILLRACE_DATA": dir}, nil, "logs", clitest.ProcessID); got.code != 0 {
		t.Errorf("by MILLRACE_DATA: exit %d %s", got.code, got.say)
	}
	if got := verb(t, map[string]string{}, nil, "logs", "--data", dir, clitest.ProcessID); got.code != 0 {
		t.Errorf("by --data: exit %d %s", got.code, got.say)
	}
}

// key create prints only the key to standard output, for scripts.
func TestKeys(t *testing.T) {
	g := newFakeGateway(t)
	if got := g.verb(nil, "key", "create", "ci"); got.code != 0 || got.out != "e2b_secret\n" || !strings.Contains(got.errOut, "bb") {
		t.Errorf("create: exit %d %s, stdout %q, stderr %q", got.code, got.say, got.out, got.errOut)
	}
	if got := g.verb(nil, "key", "ls"); got.code != 0 || !strings.Contains(got.out, "aa") || !strings.Contains(got.out, "e2b_1234...") {
		t.Errorf("ls: exit %d %s, stdout %q", got.code, got.say, got.out)
	}
	if got := g.verb(nil, "key", "rm", "aa", "bb"); got.code != 0 || strings.Join(g.Removed, " ") != "aa bb" {
		t.Errorf("rm: exit %d %s, removed %q", got.code, got.say, g.Removed)
	}
}
