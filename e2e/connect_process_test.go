package e2e_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// basic returns the header that selects a user, as the SDKs send it.
func basic(user string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"))
}

// TestCommandsRunAsRoot covers C-018: a command runs as root, with root's login environment,
// in a sandbox whose host name is its id. Without root on the host there is no root in a
// sandbox.
func TestCommandsRunAsRoot(t *testing.T) {
	onlySandboxed(t)
	if os.Geteuid() != 0 {
		t.Skip("the host's owner is not root")
	}
	a := api(t)
	box := a.Create(t)
	run := a.StartStream(t, box.ID, `id -un; echo "$HOME"; hostname; echo "$E2B_SANDBOX_ID"`, "Authorization", basic("root")).All(t)
	if want := "root\n/root\n" + box.ID + "\n" + box.ID + "\n"; run.Stdout() != want {
		t.Errorf("as root: %q (%s), want %q", run.Stdout(), run.Last.Payload, want)
	}
	// The default user is `user` with E2B's headers, and root with the other alias.
	run = a.StartStream(t, box.ID, `id -un; echo "$HOME"`).All(t)
	if got := run.Stdout(); got != "user\n/home/user\n" && got != "root\n/root\n" {
		t.Errorf("as the default user: %q", got)
	}
}

// TestProcessIsListedWhileItRuns covers C-019: a process is listed from its start to its end.
func TestProcessIsListedWhileItRuns(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	if got := list(t, a, box.ID); len(got) != 0 {
		t.Errorf("before: %+v", got)
	}
	r := a.StartSpec(t, box.ID, spec("/bin/cat", nil, "stdin", true))
	pid := r.Started(t).Event.Start.PID
	if got := list(t, a, box.ID); len(got) != 1 || got[0].PID != pid {
		t.Errorf("while it runs: %+v", got)
	}
	a.RPC(t, box.ID, "/process.Process/CloseStdin", byPID(pid))
	rest(t, r)
	if got := list(t, a, box.ID); len(got) != 0 {
		t.Errorf("after: %+v", got)
	}
}

// Names of the counters in /metrics.
const (
	mStarted = "coppice_commands_started_total"
	mActive  = "coppice_commands_active"
)

func mFinished(status string) string {
	return fmt.Sprintf(`coppice_commands_finished_total{status=%q}`, status)
}

// counts holds the counters of /metrics.
type counts struct{ started, ok, err, killed, active float64 }

func countsOf(t testing.TB, a *rig.API) counts {
	t.Helper()
	m := a.Metrics(t)
	for _, name := range []string{mStarted, mActive, mFinished("ok"), mFinished("error"), mFinished("killed")} {
		if _, ok := m[name]; !ok {
			t.Fatalf("no series %s", name)
		}
	}
	c := counts{m[mStarted], m[mFinished("ok")], m[mFinished("error")], m[mFinished("killed")], m[mActive]}
	if c.started != c.ok+c.err+c.killed+c.active {
		t.Errorf("started is not the sum of the others: %+v", c)
	}
	return c
}

// since returns the difference to before; active stays absolute.
func (c counts) since(before counts) counts {
	return counts{c.started - before.started, c.ok - before.ok, c.err - before.err, c.killed - before.killed, c.active}
}

// quiet waits until no processes of other tests run.
func quiet(t *testing.T, a *rig.API) counts {
	t.Helper()
	var c counts
	if !rig.Poll(5*time.Second, func() bool { c = countsOf(t, a); return c.active == 0 }) {
		t.Fatalf("processes of other tests run: %+v", c)
	}
	return c
}

// TestMetricsCountCommands covers C-020: the metrics count commands that started and ended,
// but not those that never ran.
func TestMetricsCountCommands(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	before := quiet(t, a)
	for range 3 {
		a.StartStream(t, box.ID, "true").All(t)
	}
	if got := countsOf(t, a).since(before); got.started != 3 || got.ok != 3 {
		t.Errorf("after 3 commands: %+v", got)
	}
	// A command that never ran does not count as started.
	a.StartSpec(t, box.ID, map[string]any{"process": map[string]any{"cmd": "/bin/true", "cwd": "/nope"}}).All(t)
	if got := countsOf(t, a).since(before); got.started != got.ok+got.err+got.killed || got.active != 0 {
		t.Errorf("after one that never ran: %+v", got)
	}
}

// TestSandboxLogsHaveEveryLine covers C-021: a sandbox's log has every line, in order, with
// the name of its stream.
func TestSandboxLogsHaveEveryLine(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	a.StartStream(t, box.ID, "seq 1 5; echo oops >&2").All(t)
	var logs struct {
		Logs []struct {
			Line string `json:"line"`
		} `json:"logs"`
		LogEntries []struct {
			Message string            `json:"message"`
			Fields  map[string]string `json:"fields"`
		} `json:"logEntries"`
	}
	a.Want(t, http.StatusOK, http.MethodGet, "/sandboxes/"+box.ID+"/logs", nil).Decode(t, &logs)
	var out, errs []string
	for _, e := range logs.LogEntries {
		stream := ""
		for _, v := range e.Fields {
			if v == "stdout" || v == "stderr" {
				stream = v
			}
		}
		switch stream {
		case "stdout":
			out = append(out, strings.TrimRight(e.Message, "\n"))
		case "stderr":
			errs = append(errs, strings.TrimRight(e.Message, "\n"))
		}
	}
	if strings.Join(out, " ") != "1 2 3 4 5" || strings.Join(errs, " ") != "oops" {
		t.Errorf("stdout %q, stderr %q of %+v", out, errs, logs.LogEntries)
	}
}

// TestEndFollowsOutput covers C-022: output comes first, then the end, then the last envelope,
// also for a slow reader; then the process is not listed any more. All checks the order.
func TestEndFollowsOutput(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	r := a.StartStream(t, box.ID, "seq 1 400000")
	r.Started(t)
	ended := rig.Poll(20*time.Second, func() bool { return len(list(t, a, box.ID)) == 0 })
	if !ended {
		t.Error("the command is blocked by its reader")
	}
	var n int
	end, words := restOf(t, r, func(b []byte) { n += bytes.Count(b, []byte{'\n'}) })
	if n != 400000 || end == nil || end.ExitCode != 0 || words != "{}" {
		t.Errorf("%d lines, end %+v, last %s", n, end, words)
	}
}

// restOf is rest that passes all output to f.
func restOf(t *testing.T, r *rig.Raw, f func([]byte)) (*rig.EndEvent, string) {
	t.Helper()
	var end *rig.EndEvent
	for {
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e.Flags&rig.FlagEnd != 0 {
			return end, string(e.Payload)
		}
		m, err := rig.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		if end != nil {
			t.Fatalf("after end: %s", e.Payload)
		}
		if _, b := m.Event.Output(); len(b) > 0 {
			f(b)
		}
		if m.Event.End != nil {
			end = m.Event.End
		}
	}
}

// TestEndedCommandStaysEnded covers C-023: no later call changes a command that has ended.
func TestEndedCommandStaysEnded(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	before := quiet(t, a)
	run := a.StartStream(t, box.ID, "exit 4").All(t)
	for range 3 {
		if ans := a.RPC(t, box.ID, "/process.Process/SendSignal", byPID(run.PID, "signal", "SIGNAL_SIGKILL")); ans.Status != http.StatusNotFound {
			t.Errorf("SendSignal after the end: %v", ans)
		}
	}
	if got, want := countsOf(t, a).since(before), (counts{started: 1, err: 1}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

// TestSignalCountsAtOnce covers C-024: a signal counts at once, in both forms of the request.
func TestSignalCountsAtOnce(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	for _, tt := range []struct {
		name string
		msg  func(pid uint32) any
	}{
		{"as E2B", func(pid uint32) any { return byPID(pid, "signal", "SIGNAL_SIGTERM") }},
		{"flat", func(pid uint32) any { return map[string]any{"pid": pid, "signal": "SIGNAL_SIGTERM"} }},
	} {
		before := quiet(t, a)
		r := a.StartStream(t, box.ID, "trap '' TERM; echo ready; sleep 60")
		pid := r.Started(t).Event.Start.PID
		r.Next()
		if ans := a.RPC(t, box.ID, "/process.Process/SendSignal", tt.msg(pid)); ans.Status != http.StatusOK {
			t.Fatalf("%s: %v", tt.name, ans)
		}
		got := countsOf(t, a).since(before)
		if got.killed != 1 || got.active != 0 || got.started != 1 {
			t.Errorf("%s: right after the call: %+v", tt.name, got)
		}
		a.RPC(t, box.ID, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGKILL"))
		rest(t, r)
		// C-025: the end itself adds nothing.
		if got := countsOf(t, a).since(before); got != (counts{started: 1, killed: 1}) {
			t.Errorf("%s: after its end: %+v", tt.name, got)
		}
	}
}

// TestCaughtSignalCountsAsKilled covers C-025: a process that catches a signal and exits with
// 0 counts as killed.
func TestCaughtSignalCountsAsKilled(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	before := quiet(t, a)
	// It catches the signal and exits with 0: that counts as killed and not as ok.
	r := a.StartStream(t, box.ID, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done")
	pid := r.Started(t).Event.Start.PID
	r.Next()
	a.RPC(t, box.ID, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGTERM"))
	if end, _ := rest(t, r); end == nil || end.ExitCode != 0 || !end.Exited {
		t.Errorf("end: %+v", end)
	}
	if got := countsOf(t, a).since(before); got != (counts{started: 1, killed: 1}) {
		t.Errorf("counts: %+v", got)
	}
}

// TestSignalsReachTheGroup covers C-027: SIGTERM can be caught; SIGKILL and SIGTERM reach the
// whole process group.
func TestSignalsReachTheGroup(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	r := a.StartStream(t, box.ID, "exec 2>/dev/null; trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.01; done")
	pid := r.Started(t).Event.Start.PID
	r.Next()
	a.RPC(t, box.ID, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGTERM"))
	var out []byte
	end, _ := restOf(t, r, func(b []byte) { out = append(out, b...) })
	if string(out) != "caught\n" || end == nil || end.ExitCode != 7 || !end.Exited {
		t.Errorf("SIGTERM: %q, %+v", out, end)
	}
	r = a.StartStream(t, box.ID, "sleep 1234 & sleep 1234 & echo ready; wait")
	pid = r.Started(t).Event.Start.PID
	r.Next()
	a.RPC(t, box.ID, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGKILL"))
	if end, _ := rest(t, r); end == nil || end.Exited || end.Status != "signal: killed" {
		t.Errorf("SIGKILL: %+v", end)
	}
	if got := a.StartStream(t, box.ID, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '^sleep 1234' || true").All(t).Stdout(); got != "0\n" {
		t.Errorf("children left: %q", got)
	}
}

// wantCode fails unless a call failed with a code.
func wantCode(t *testing.T, what string, ans rig.Answer, status int, code string) {
	t.Helper()
	var e rig.ConnectError
	ans.Decode(t, &e)
	if ans.Status != status || e.Code != code || e.Message == "" {
		t.Errorf("%s: %v, want %d %s", what, ans, status, code)
	}
}

// TestUnknownProcessIsNotFound covers C-028: calls for an unknown process fail with not_found.
func TestUnknownProcessIsNotFound(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	for _, m := range []string{"SendSignal", "SendInput", "CloseStdin", "Update"} {
		msg := byPID(4194301, "signal", "SIGNAL_SIGTERM", "input", stdin([]byte("x")))
		wantCode(t, m, a.RPC(t, box.ID, "/process.Process/"+m, msg), http.StatusNotFound, "not_found")
	}
	ans := a.RPC(t, box.ID, "/process.Process/SendSignal", struct{}{})
	if ans.Status != http.StatusBadRequest && ans.Status != http.StatusNotImplemented {
		t.Errorf("no selector: %v", ans)
	}
}

// TestInputReachesTheProcess covers C-029: SendInput passes all byte values to the process.
func TestInputReachesTheProcess(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	r := a.StartSpec(t, box.ID, spec("/bin/cat", nil, "stdin", true))
	pid := r.Started(t).Event.Start.PID
	for half := range 2 {
		msg := byPID(pid, "input", stdin(allBytes()[half*128:half*128+128]))
		if ans := a.RPC(t, box.ID, "/process.Process/SendInput", msg); ans.Status != http.StatusOK || string(ans.Body) != "{}" {
			t.Fatalf("SendInput: %v", ans)
		}
	}
	a.RPC(t, box.ID, "/process.Process/CloseStdin", byPID(pid))
	var out []byte
	restOf(t, r, func(b []byte) { out = append(out, b...) })
	if !bytes.Equal(out, allBytes()) {
		t.Errorf("echo: %x", out)
	}
}

// TestCloseStdin covers C-030: CloseStdin ends the input of a process.
func TestCloseStdin(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	r := a.StartSpec(t, box.ID, spec("/bin/cat", nil, "stdin", true))
	pid := r.Started(t).Event.Start.PID
	if ans := a.RPC(t, box.ID, "/process.Process/CloseStdin", byPID(pid)); ans.Status != http.StatusOK || string(ans.Body) != "{}" {
		t.Errorf("CloseStdin: %v", ans)
	}
	if end, words := rest(t, r); end == nil || end.ExitCode != 0 || words != "{}" {
		t.Errorf("end %+v, last %s", end, words)
	}
}

// pty returns a terminal's size for a request.
func pty(cols, rows int) map[string]any {
	return map[string]any{"size": map[string]any{"cols": cols, "rows": rows}}
}

// startPTY starts a shell on a terminal.
func startPTY(t *testing.T, a *rig.API, sandbox, cmd string, cols, rows int) (*rig.Raw, uint32) {
	t.Helper()
	r := a.StartSpec(t, sandbox, map[string]any{
		"process": map[string]any{"cmd": "/bin/bash", "args": []string{"-c", cmd}, "envs": map[string]string{"TERM": "xterm-256color"}},
		"pty":     pty(cols, rows),
	})
	return r, r.Started(t).Event.Start.PID
}

// keys returns terminal input for a request.
func keys(s string) map[string]any {
	return map[string]any{"pty": base64.StdEncoding.EncodeToString([]byte(s))}
}

// until reads output until it contains want, and returns all of it.
func until(t *testing.T, r *rig.Raw, want string) string {
	t.Helper()
	r.Deadline(15 * time.Second) // missing output fails soon
	defer r.Deadline(0)
	var out []byte
	for !bytes.Contains(out, []byte(want)) {
		e, err := r.Next()
		if err != nil || e.Flags != 0 {
			t.Fatalf("waiting for %q: %s (%v) after %q", want, e.Payload, err, out)
		}
		m, err := rig.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		_, b := m.Event.Output()
		out = append(out, b...)
	}
	return string(out)
}

// TestUpdateResizesTheTerminal covers C-031: Update resizes a terminal, and fails for a
// process without one.
func TestUpdateResizesTheTerminal(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	r, pid := startPTY(t, a, box.ID, "stty size; read x; stty size", 80, 24)
	until(t, r, "24 80\r\n")
	if ans := a.RPC(t, box.ID, "/process.Process/Update", byPID(pid, "pty", pty(132, 43))); ans.Status != http.StatusOK {
		t.Errorf("Update: %v", ans)
	}
	a.RPC(t, box.ID, "/process.Process/SendInput", byPID(pid, "input", keys("\n")))
	until(t, r, "43 132\r\n")
	plain := a.StartStream(t, box.ID, "sleep 60")
	pid = plain.Started(t).Event.Start.PID
	ans := a.RPC(t, box.ID, "/process.Process/Update", byPID(pid, "pty", pty(132, 43)))
	if ans.Status != http.StatusOK || string(ans.Body) != "{}" {
		t.Errorf("Update of a process without a terminal: %v", ans)
	}
}

// TestLateReaderSeesTheSame covers C-032: a late reader sees the same as the first one, also
// after the end.
func TestLateReaderSeesTheSame(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	first := a.StartSpec(t, box.ID, spec("/bin/bash", []string{"-c", "seq 1 100; read x; echo $x; exit 5"}, "stdin", true, "tag", "mine"))
	pid := first.Started(t).Event.Start.PID
	second := a.ConnectTo(t, box.ID, pid)
	a.RPC(t, box.ID, "/process.Process/SendInput", byPID(pid, "input", stdin([]byte("go\n"))))
	var want strings.Builder
	for i := range 100 {
		fmt.Fprintln(&want, i+1)
	}
	want.WriteString("go\n")
	for name, r := range map[string]*rig.Raw{
		"while it runs":  second,
		"after the end":  nil,
		"by its tag":     nil,
		"by tag, twice ": nil,
	} {
		if r == nil {
			rest(t, a.ConnectTo(t, box.ID, pid))
			msg := map[string]any{"process": map[string]any{"pid": pid}}
			if strings.HasPrefix(name, "by") {
				msg = map[string]any{"process": map[string]any{"tag": "mine"}}
			}
			r = a.Dial(t, rig.Message("/process.Process/Connect", msg, "E2b-Sandbox-Id", box.ID))
		}
		run := r.All(t)
		if run.PID != pid || run.Stdout() != want.String() || run.End == nil || run.End.ExitCode != 5 {
			t.Errorf("%s: pid %d, %d bytes, end %+v, last %s", name, run.PID, len(run.Stdout()), run.End, run.Last.Payload)
		}
	}
}

// TestListShowsRunningProcesses covers C-033: List shows running processes with their command
// line and tag, but without their environment.
func TestListShowsRunningProcesses(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	r := a.StartSpec(t, box.ID, map[string]any{
		"process": map[string]any{"cmd": "/bin/sleep", "args": []string{"60"}, "envs": map[string]string{"A": "1"}, "cwd": "/tmp"},
		"tag":     "sleeper",
	})
	pid := r.Started(t).Event.Start.PID
	got := list(t, a, box.ID)
	if len(got) != 1 {
		t.Fatalf("List: %+v", got)
	}
	c := got[0].Config
	if got[0].PID != pid || got[0].Tag != "sleeper" || c.Cmd != "/bin/sleep" || strings.Join(c.Args, " ") != "60" || c.Cwd != "/tmp" {
		t.Errorf("List: %+v", got[0])
	}
	if c.Envs["A"] != "1" {
		t.Errorf("List has envs %v, want A=1", c.Envs)
	}
}
