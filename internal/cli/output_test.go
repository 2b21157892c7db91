package cli

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/cli/clitest"
)

// With --output json a run writes the ids of the process and sandbox, then the events.
func TestRunWritesEventsAsJSON(t *testing.T) {
	g := newFakeGateway(t, end(`{"type":"end","exit_code":3,"signal":null,"cause":"exited"}`)...)
	got := g.verb(nil, "run", "-n", "-s", "iabc", "-o", "json", "x")
	lines := strings.SplitAfter(strings.TrimSuffix(got.out, "\n"), "\n")
	if got.code != 3 || got.errOut != "" || len(lines) != len(short)+2 || lines[0] != `{"type":"process","process":"01hzz-iabc","sandbox":"iabc"}`+"\n" {
		t.Fatalf("exit %d %s, stdout %q, stderr %q", got.code, got.say, got.out, got.errOut)
	}
	logs := g.verb(nil, "logs", "--json", clitest.ProcessID)
	if got.out != lines[0]+logs.out {
		t.Errorf("stdout\n%swant\n%s%s", got.out, lines[0], logs.out)
	}
	got = g.verb(nil, "run", "-d", "-s", "iabc", "-o", "json", "x")
	if got.code != 0 || got.out != `{"process":"01hzz-iabc","sandbox":"iabc"}`+"\n" {
		t.Errorf("detached: exit %d %s, stdout %q", got.code, got.say, got.out)
	}
	if got = g.verb(nil, "run", "-d", "-s", "iabc", "x"); got.out != clitest.ProcessID+"\n" {
		t.Errorf("detached without JSON: %q", got.out)
	}
}

func TestLostConnectionPrintsHowToContinue(t *testing.T) {
	g := newFakeGateway(t, end(`{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)...)
	g.CutAfter[3] = true
	got := g.verb(nil, "run", "-n", "-s", "iabc", "x")
	const want = "connection to process 01hzz-iabc lost after event 3 (the gateway closed the connection); resuming. To continue later: millrace attach --after 3 01hzz-iabc"
	if got.code != 0 || !strings.Contains(got.errOut, want) {
		t.Errorf("exit %d %s, stderr %q; want %q", got.code, got.say, got.errOut, want)
	}
}

// Each line has one timestamp, also if it arrives in pieces.
func TestLogsStampLines(t *testing.T) {
	g := newFakeGateway(t, `{"type":"start","pid":7}`, `{"type":"stdout","offset":0,"data":"a\nb"}`, `{"type":"stderr","offset":0,"data":"e\n"}`,
		`{"type":"stdout","offset":3,"data":"c\n\nd"}`, `{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)
	const at = "2026-01-02T03:04:05.000Z "
	got := g.verb(nil, "logs", "-t", clitest.ProcessID)
	if want := at + "a\n" + at + "bc\n" + at + "\n" + at + "d"; got.out != want || got.errOut != at+"e\n" {
		t.Errorf("stdout %q, stderr %q; want %q", got.out, got.errOut, want)
	}
}

func TestLogsDefaultToTheLatestProcess(t *testing.T) {
	g := newFakeGateway(t, end(`{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)...)
	for _, args := range [][]string{{"logs"}, {"logs", "-f"}} {
		got := g.verb(nil, args...)
		if got.code != 0 || got.out != "a\n\xff\x00" || got.errOut != "millrace: logs of process 01hzz-iabc (sleep 9)\noops\n" {
			t.Errorf("%v: exit %d %s, stdout %q, stderr %q", args, got.code, got.say, got.out, got.errOut)
		}
	}
}

// The CLI's JSON has names in snake_case and times in one format.
func TestJSONHasOneCaseAndOneTime(t *testing.T) {
	g := newFakeGateway(t)
	snake := regexp.MustCompile(`^[a-z0-9_]+$`)
	stamp := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
	var check func(args, name string, v any)
	check = func(args, name string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				if !snake.MatchString(k) {
					t.Errorf("%s: name %q is not in snake_case", args, k)
				}
				check(args, k, x)
			}
		case []any:
			for _, x := range v {
				check(args, name, x)
			}
		case string:
			if strings.HasSuffix(name, "_at") && !stamp.MatchString(v) {
				t.Errorf("%s: %s is %q", args, name, v)
			}
		}
	}
	for _, args := range []string{"ps -a", "sandbox ls -a", "sandbox show i1", "sandbox create", "sandbox fork iabc", "hosts", "key ls", "key create ci", "doctor"} {
		got := g.verb(nil, append(strings.Fields(args), "-o", "json")...)
		var v any
		if err := json.Unmarshal([]byte(got.out), &v); err != nil {
			t.Errorf("%s: %v %s\n%s", args, err, got.say, got.out)
		}
		check(args, "", v)
	}
}
