package cli

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/clitest"
	"github.com/millrace/millrace/internal/cli/output"
)

var short = []string{
	`{"type":"accepted","cmd":"x","args":[]}`,
	`{"type":"start","pid":7}`,
	`{"type":"stdout","offset":0,"data":"a\n"}`,
	`{"type":"stderr","offset":0,"data":"oops\n"}`,
	`{"type":"stdout","offset":2,"data_b64":"/wA="}`,
	`{"type":"exited","exit_code":0,"signal":null,"cause":"exited"}`,
}

func end(s string) []string { return append(short[:len(short):len(short)], s) }

func TestRunExitsAsTheCommandDid(t *testing.T) {
	tests := []struct {
		name, end string
		code      int
		say       string
	}{
		{"code 0", `{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`, 0, ""},
		{"code 3", `{"type":"end","exit_code":3,"signal":null,"cause":"exited"}`, 3, ""},
		{"code 255", `{"type":"end","exit_code":255,"signal":null,"cause":"exited"}`, 255, ""},
		{"a signal is 128 plus its number", `{"type":"end","exit_code":-1,"signal":9,"cause":"killed"}`, 137, ""},
		{"an unknown exit status is never 0", `{"type":"end","exit_code":null,"signal":null,"cause":"host_lost"}`, 125, "exit status unknown (host_lost)"},
		{"with its reason", `{"type":"end","exit_code":null,"signal":null,"cause":"shim_lost","message":"the sandbox used up its memory"}`, 125,
			"exit status unknown (shim_lost): the sandbox used up its memory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newFakeGateway(t, end(tt.end)...)
			got := g.verb(strings.NewReader(""), "run", "-s", "iabc", "x")
			if got.code != tt.code || got.say != tt.say {
				t.Errorf("exit %d %q; want %d %q", got.code, got.say, tt.code, tt.say)
			}
			if got.out != "a\n\xff\x00" || got.errOut != "oops\n" {
				t.Errorf("stdout %q, stderr %q", got.out, got.errOut)
			}
		})
	}
}

// The error of a process that did not start is printed once. An attach after that event
// reports an unknown exit status.
func TestStartErrorIsPrintedOnce(t *testing.T) {
	record := []string{
		`{"type":"accepted","cmd":"x","args":[]}`,
		`{"type":"error","error_code":"invalid","message":"cwd '/nope' does not exist"}`,
		`{"type":"end","exit_code":null,"signal":null,"cause":"not_started"}`,
	}
	tests := []struct {
		args        string
		say, errOut string
	}{
		{"run -n -s iabc x", "", "millrace: cwd '/nope' does not exist\n"},
		{"attach -n " + clitest.ProcessID, "", "millrace: cwd '/nope' does not exist\n"},
		{"attach -n --after 2 " + clitest.ProcessID, "exit status unknown (not_started)", ""},
	}
	for _, tt := range tests {
		g := newFakeGateway(t, record...)
		if got := g.verb(nil, strings.Fields(tt.args)...); got.code != output.ExitMillrace || got.say != tt.say || got.errOut != tt.errOut {
			t.Errorf("%s: exit %d %q %q; want %q %q", tt.args, got.code, got.say, got.errOut, tt.say, tt.errOut)
		}
	}
}

// A connection that breaks after every event loses and repeats nothing, and each break is
// reported.
func TestRunResumesAfterEveryEvent(t *testing.T) {
	record := []string{`{"type":"accepted"}`, `{"type":"start","pid":7}`}
	want := ""
	for i := range 50 {
		record = append(record, fmt.Sprintf(`{"type":"stdout","offset":%d,"data":"%d\n"}`, len(want), i))
		want += fmt.Sprintf("%d\n", i)
	}
	g := newFakeGateway(t, append(record, `{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)...)
	for i := range record {
		g.CutAfter[i+1] = true
	}
	got := g.verb(strings.NewReader(""), "run", "-n", "-s", "iabc", "x")
	if got.code != 0 || got.out != want {
		t.Errorf("exit %d %s, stdout %q", got.code, got.say, got.out)
	}
	if n := strings.Count(got.errOut, "resumed after event"); n != len(record) {
		t.Errorf("reported %d resumptions of %d:\n%s", n, len(record), got.errOut)
	}
}

func TestRunResumesOnTheNextGateway(t *testing.T) {
	first := newFakeGateway(t, short[:4]...)
	first.CutAfter[4] = true
	second := newFakeGateway(t, end(`{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)...)
	first.Mortal = true
	env := map[string]string{"MILLRACE_URL": first.Server.URL + "," + second.Server.URL, "MILLRACE_API_KEY": "e2b_00"}
	got := verb(t, env, strings.NewReader(""), "run", "-n", "-s", "iabc", "x")
	if got.code != 0 || got.out != "a\n\xff\x00" {
		t.Errorf("exit %d %s, stdout %q\n%s", got.code, got.say, got.out, got.errOut)
	}
}

// run fails at once if no gateway is reachable, but waits for one that answered before.
func TestRunFailsAtOnceWithoutGateway(t *testing.T) {
	env := map[string]string{"MILLRACE_URL": "http://127.0.0.1:1,http://127.0.0.1:2", "MILLRACE_API_KEY": "e2b_00"}
	began := time.Now()
	got := verb(t, env, nil, "run", "-n", "-s", "iabc", "x")
	const want = "gateway http://127.0.0.1:2 is unreachable: connection refused (start one with `millrace up`, or set --url or MILLRACE_URL)"
	if took := time.Since(began); got.code != output.ExitMillrace || got.say != want || took > client.StartTimeout/2 {
		t.Errorf("exit %d %q after %v; want %q", got.code, got.say, took, want)
	}
	g := newFakeGateway(t, end(`{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)...)
	env["MILLRACE_URL"] = "http://127.0.0.1:1," + g.Server.URL
	if got := verb(t, env, nil, "run", "-n", "-s", "iabc", "x"); got.code != 0 || got.errOut != "oops\n" {
		t.Errorf("with the second gateway: exit %d %q %q", got.code, got.say, got.errOut)
	}
}

// The cause of a process's end is printed unless the exit code implies it.
func TestRunPrintsTheCauseOfTheEnd(t *testing.T) {
	for _, tt := range []struct {
		name, end, want string
		code            int
	}{
		{"its time limit", `"exit_code":-1,"signal":9,"cause":"timeout"`, "millrace: the process was killed at its time limit of 1.5s\n", 137},
		{"memory", `"exit_code":-1,"signal":9,"cause":"oom"`, "millrace: the process was killed because the sandbox used up its memory\n", 137},
		{"its sandbox", `"exit_code":-1,"signal":9,"cause":"sandbox_gone"`, "millrace: the process was killed because its sandbox ended\n", 137},
		{"a reason in the record", `"exit_code":-1,"signal":9,"cause":"killed","message":"evicted"`, "millrace: the process ended: evicted\n", 137},
		{"a signal from a client", `"exit_code":-1,"signal":15,"cause":"killed"`, "", 143},
		{"itself", `"exit_code":1,"signal":null,"cause":"exited"`, "", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newFakeGateway(t, `{"type":"accepted","timeout_ms":1500}`, `{"type":"start","pid":7}`, `{"type":"end",`+tt.end+`}`)
			for _, args := range []string{"run -n -s iabc x", "attach -n " + clitest.ProcessID, "logs -f " + clitest.ProcessID} {
				got := g.verb(nil, strings.Fields(args)...)
				if got.errOut != tt.want || got.code != tt.code && args[0] != 'l' {
					t.Errorf("%s: exit %d, stderr %q; want %d, %q", args, got.code, got.errOut, tt.code, tt.want)
				}
			}
		})
	}
}

// A terminal receives the end of input as a character: one at the beginning of a line, two
// within a line, and one more for the next reader. An existing process receives none.
func TestInputEndsAtATerminal(t *testing.T) {
	for _, tt := range []struct {
		verb, in string
		want     string
	}{
		{"run -t -s iabc cat", "x\n", "x\n\x04\x04"},
		{"run -t -s iabc cat", "x", "x\x04\x04\x04"},
		{"run -t -s iabc cat", "", "\x04\x04"},
		{"attach " + clitest.ProcessID, "x", "x"},
	} {
		g := newFakeGateway(t, short[:2]...)
		g.PTY = true
		g.OnInput = func([]byte, bool) {
			if g.Stdin.Len() == len(tt.want) {
				g.Grow(`{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)
			}
		}
		got := g.verb(strings.NewReader(tt.in), strings.Fields(tt.verb)...)
		if got.code != 0 || g.Stdin.String() != tt.want || g.EOF {
			t.Errorf("%s with %q: exit %d %s, input %q, end %v; want %q", tt.verb, tt.in, got.code, got.say, g.Stdin.String(), g.EOF, tt.want)
		}
	}
}

func TestUnsetVariablesAreNotForwarded(t *testing.T) {
	g := newFakeGateway(t, end(`{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)...)
	env := map[string]string{"MILLRACE_URL": g.Server.URL, "MILLRACE_API_KEY": "e2b_00", "HERE": "1", "EMPTY": ""}
	if got := verb(t, env, nil, "run", "-n", "-s", "iabc", "-e", "HERE", "-e", "EMPTY", "-e", "UNSET", "-e", "SET=2", "x"); got.code != 0 {
		t.Errorf("exit %d %s", got.code, got.say)
	}
	if got := fmt.Sprint(g.Commands[0]["envs"]); got != "map[EMPTY: HERE:1 SET:2]" {
		t.Errorf("variables %s", got)
	}
}

// run prints the lifetime of a sandbox that it keeps.
func TestRunPrintsTheLifetimeOfAKeptSandbox(t *testing.T) {
	for _, tt := range []struct {
		args string
		most int64
		sent []int64
		say  string
		code int
	}{
		{"run -d x", 0, []int64{3600, 3600}, "sandbox iabc ends in 1h0m0s, at ", 0},
		{"run -d x", 1800, []int64{3600, 1800, 3600, 1800}, "sandbox iabc ends in 30m0s, at ", 0},
		{"run -d --lifetime 5h x", 0, []int64{18000, 18000}, "sandbox iabc ends in 5h0m0s, at ", 0},
		{"run -n --keep --lifetime 2h x", 0, []int64{7200, 7200}, "sandbox iabc ends in 2h0m0s, at ", 0},
		{"run -d --lifetime 5h x", 1800, []int64{18000}, "", output.ExitMillrace},
	} {
		g := newFakeGateway(t, end(`{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)...)
		g.Most = tt.most
		got := g.verb(nil, strings.Fields(tt.args)...)
		if got.code != tt.code || !slices.Equal(g.Timeouts, tt.sent) || !strings.Contains(got.errOut, tt.say) || len(g.Removed) > 0 {
			t.Errorf("%s: exit %d %s, sent %v, stderr %q, removed %v", tt.args, got.code, got.say, g.Timeouts, got.errOut, g.Removed)
		}
	}
}

func TestGapIsReported(t *testing.T) {
	g := newFakeGateway(t, `{"type":"accepted"}`, `{"type":"gap","from":2,"to":2,"reason":"not stored"}`, `{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)
	got := g.verb(strings.NewReader(""), "run", "-n", "-s", "iabc", "x")
	if got.code != 0 || !strings.Contains(got.errOut, "events 2 to 2 cannot be read: not stored") {
		t.Errorf("exit %d, stderr %q", got.code, got.errOut)
	}
}

func TestRunCreatesAndRemovesItsSandbox(t *testing.T) {
	g := newFakeGateway(t, end(`{"type":"end","exit_code":1,"signal":null,"cause":"exited"}`)...)
	if got := g.verb(strings.NewReader(""), "run", "--", "printf", "%s", "a b"); got.code != 1 {
		t.Errorf("exit %d %s", got.code, got.say)
	}
	if g.Created != 1 || len(g.Removed) != 1 || g.Removed[0] != "iabc" {
		t.Errorf("created %d, removed %v", g.Created, g.Removed)
	}
	cmd := g.Commands[0]
	if cmd["cmd"] != "printf" || fmt.Sprint(cmd["args"]) != "[%s a b]" || cmd["sandbox"] != "iabc" || cmd["stdin"] != true || cmd["timeout_ms"] != 0.0 {
		t.Errorf("command %v", cmd)
	}
}

func TestSingleArgumentIsRunByTheShell(t *testing.T) {
	g := newFakeGateway(t, end(`{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)...)
	g.verb(strings.NewReader(""), "run", "-s", "iabc", "-n", "-e", "A=1", "-w", "/tmp", "seq 3 | tac")
	cmd := g.Commands[0]
	if _, ok := cmd["args"]; ok || cmd["cmd"] != "seq 3 | tac" || cmd["cwd"] != "/tmp" || fmt.Sprint(cmd["envs"]) != "map[A:1]" || cmd["stdin"] != nil {
		t.Errorf("command %v", cmd)
	}
}

func TestStartIsRetriedUnderOneKey(t *testing.T) {
	g := newFakeGateway(t, end(`{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)...)
	g.Fail["POST /commands"] = 2
	if got := g.verb(strings.NewReader(""), "run", "-s", "iabc", "-n", "x"); got.code != 0 {
		t.Errorf("exit %d %s", got.code, got.say)
	}
	if len(g.Keys) != 1 || g.Keys[0] == "" {
		t.Errorf("keys %q", g.Keys)
	}
}

func TestMillraceFailureExits125(t *testing.T) {
	g := newFakeGateway(t)
	tests := []struct {
		name string
		env  map[string]string
		say  string
	}{
		{"no gateway configured", map[string]string{"HOME": t.TempDir()}, "no gateway configured"},
		{"connection refused", map[string]string{"MILLRACE_URL": "http://127.0.0.1:1", "MILLRACE_API_KEY": "k"}, "127.0.0.1:1"},
		{"wrong key", map[string]string{"MILLRACE_URL": g.Server.URL, "MILLRACE_API_KEY": "k"}, "no such key"},
		{"not a URL", map[string]string{"MILLRACE_URL": "localhost", "MILLRACE_API_KEY": "k"}, "must be an http or https URL"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := verb(t, tt.env, strings.NewReader(""), "run", "x")
			if got.code != 125 || !strings.Contains(got.say, tt.say) || got.out != "" {
				t.Errorf("exit %d %q, stdout %q", got.code, got.say, got.out)
			}
		})
	}
}

func TestInputIsForwardedToItsEnd(t *testing.T) {
	g := newFakeGateway(t, short[:2]...)
	g.OnInput = func(b []byte, eof bool) {
		if eof {
			g.Grow(`{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)
		}
	}
	in := strings.Repeat("0123456789\x00\xff", 20_000)
	if got := g.verb(strings.NewReader(in), "run", "-s", "iabc", "cat"); got.code != 0 {
		t.Errorf("exit %d %s", got.code, got.say)
	}
	if g.Stdin.String() != in || !g.EOF {
		t.Errorf("received %d bytes of %d, eof %v", g.Stdin.Len(), len(in), g.EOF)
	}
}

// Input whose response was lost is not sent again if the record shows that the process
// took it.
func TestInputIsNotRepeated(t *testing.T) {
	g := newFakeGateway(t, short[:2]...)
	sent := 0
	r, w := io.Pipe()
	g.OnInput = func(b []byte, eof bool) {
		sent++
		switch {
		case sent == 1: // taken, but the response is lost
			go w.Write([]byte("def"))
			g.Grow(`{"type":"stdin_ack","offset":3}`)
			panic(http.ErrAbortHandler)
		case eof:
			g.Grow(`{"type":"stdin_ack","offset":6,"eof":true}`, `{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)
		default:
			go w.Close()
		}
	}
	go w.Write([]byte("abc"))
	got := g.verb(r, "run", "-s", "iabc", "cat")
	if got.code != 0 || g.Stdin.String() != "abcdef" || sent != 3 {
		t.Errorf("exit %d %s; %q in %d requests\n%s", got.code, got.say, g.Stdin.String(), sent, got.errOut)
	}
}
