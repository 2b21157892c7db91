package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// TestKillRaceIsCountedOnce covers C-026: a kill that races with the end of a process is
// counted exactly once.
func TestKillRaceIsCountedOnce(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	before := quiet(t, a)
	const total, lanes = 500, 8
	var wg sync.WaitGroup
	errs := make(chan string, total)
	for lane := range lanes {
		wg.Go(func() {
			for i := lane; i < total; i += lanes {
				if err := raceKill(a, box.ID); err != nil {
					errs <- err.Error()
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for e := range errs {
		t.Error(e)
	}
	got := countsOf(t, a).since(before)
	if got.started != total || got.active != 0 || got.ok+got.err+got.killed != total {
		t.Errorf("counts: %+v", got)
	}
	t.Logf("%+v", got)
}

// raceKill starts a short command and kills it at about the time of its end.
func raceKill(a *rig.API, sandbox string) error {
	body := map[string]any{"cmd": "/bin/sleep", "args": []string{"0.005"}}
	s, ans, err := a.OpenStream(http.MethodPost, "/commands", body, "E2b-Sandbox-Id", sandbox)
	if err != nil || s == nil {
		return fmt.Errorf("start: %v %w", ans, err)
	}
	defer s.Close()
	first, err := s.Next()
	if err != nil || first.Type != "start" {
		return fmt.Errorf("first line %+v: %w", first, err)
	}
	<-time.After(time.Duration(rand.N(8000)) * time.Microsecond)
	ans, err = a.Call(http.MethodPost, fmt.Sprintf("/commands/%s/kill", first.Process), nil, "E2b-Sandbox-Id", sandbox)
	if err != nil || ans.Status != http.StatusOK && ans.Status != http.StatusNotFound {
		return fmt.Errorf("kill: %v %w", ans, err)
	}
	ends := 0
	for {
		l, err := s.Next()
		if err != nil {
			break
		}
		if l.Type == "end" {
			ends++
		}
	}
	if ends != 1 {
		return fmt.Errorf("%d ends", ends)
	}
	return nil
}

// TestNDJSONMatchesTheSample covers C-034: the stream equals the sample byte for byte, except
// for the process id in the first line.
func TestNDJSONMatchesTheSample(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	got := a.Commands(t, box.ID, "seq 1 5").All(t)
	if len(got) != 7 {
		t.Fatalf("lines:\n%s", raws(got))
	}
	if want := fmt.Sprintf(`{"type":"start","pid":%d,"process":%q}`, got[0].PID, got[0].Process); got[0].Raw != want || got[0].PID == 0 || got[0].Process == "" {
		t.Errorf("first line %s, want %s", got[0].Raw, want)
	}
	for i := range 5 {
		if want := fmt.Sprintf(`{"type":"stdout","data":"%d\n"}`, i+1); got[i+1].Raw != want {
			t.Errorf("line %d: %s, want %s", i+1, got[i+1].Raw, want)
		}
	}
	if want := `{"type":"end","exit_code":0}`; got[6].Raw != want {
		t.Errorf("last line %s, want %s", got[6].Raw, want)
	}
}

// TestNDJSONEventsAreSentAtOnce covers C-035: each event is sent when it happens.
func TestNDJSONEventsAreSentAtOnce(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	began := time.Now()
	s := a.Commands(t, box.ID, "echo now; sleep 60")
	if ct := s.Header.Get("Content-Type"); ct != "application/x-ndjson" {
		t.Errorf("content type %q", ct)
	}
	start, line := s.Must(t), s.Must(t)
	if d := line.At.Sub(began); start.Type != "start" || string(line.Bytes()) != "now\n" || d > 30*time.Second {
		t.Errorf("after %v: %s, %s", d, start.Raw, line.Raw)
	}
}

// TestListGetAndKillCommands covers C-036: commands can be listed, read and killed.
func TestListGetAndKillCommands(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	s := a.Commands(t, box.ID, "sleep 60")
	start := s.Must(t)
	type command struct {
		PID      uint32 `json:"pid"`
		Process  string `json:"process"`
		State    string `json:"state"`
		ExitCode *int   `json:"exit_code"`
		Killed   bool   `json:"killed"`
	}
	var all []command
	a.Want(t, http.StatusOK, http.MethodGet, "/commands", nil, "E2b-Sandbox-Id", box.ID).Decode(t, &all)
	if len(all) != 1 || all[0].PID != start.PID || all[0].State != "running" {
		t.Errorf("list: %+v", all)
	}
	path := fmt.Sprintf("/commands/%d", start.PID)
	var one command
	a.Want(t, http.StatusOK, http.MethodGet, path, nil, "E2b-Sandbox-Id", box.ID).Decode(t, &one)
	if one.Process != start.Process {
		t.Errorf("get: %+v", one)
	}
	a.Want(t, http.StatusOK, http.MethodPost, path+"/kill", nil, "E2b-Sandbox-Id", box.ID)
	end := rig.End(t, s.All(t))
	if end.ExitCode == nil || *end.ExitCode != -1 || end.Signal == nil || *end.Signal != 9 || end.Cause != "killed" {
		t.Errorf("end: %s", end.Raw)
	}
	for _, m := range []string{http.MethodGet + " /commands/4194301", http.MethodPost + " /commands/4194301/kill", http.MethodGet + " /commands/abc"} {
		method, p, _ := strings.Cut(m, " ")
		if ans := a.Do(t, method, p, nil, "E2b-Sandbox-Id", box.ID); ans.Status != http.StatusNotFound {
			t.Errorf("%s: %v", m, ans)
		}
	}
}

// TestNDJSONTimeouts covers C-037: timeout_ms limits the run time of a command; the default is
// 60 s, and 0 means no limit.
func TestNDJSONTimeouts(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	for _, tt := range []struct {
		name     string
		fields   []any
		min, max time.Duration
		code     int
		long     bool
	}{
		{"300 ms", []any{"timeout_ms", 300}, 300 * time.Millisecond, 30 * time.Second, -1, false},
		{"omitted", nil, 60 * time.Second, 90 * time.Second, -1, true},
		{"no timeout", []any{"timeout_ms", 0}, 61 * time.Second, 90 * time.Second, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long && testing.Short() {
				t.Skip("takes a minute")
			}
			t.Parallel()
			began := time.Now()
			end := rig.End(t, a.Commands(t, box.ID, "sleep 61.5", tt.fields...).All(t))
			if d := time.Since(began); end.ExitCode == nil || *end.ExitCode != tt.code || d < tt.min || d > tt.max {
				t.Errorf("after %v: %s", d, end.Raw)
			}
		})
	}
}

// TestTimeoutKills covers C-038: a command at its timeout is killed even if it ignores
// SIGTERM.
func TestTimeoutKills(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	before := quiet(t, a)
	lines := a.Commands(t, box.ID, "trap '' TERM; echo before; sleep 60", "timeout_ms", 300).All(t)
	if end := rig.End(t, lines); end.Raw != `{"type":"end","exit_code":-1}` {
		t.Errorf("end: %s", end.Raw)
	}
	if out := rig.Output(lines, "stdout"); out != "before\n" {
		t.Errorf("output: %q", out)
	}
	if got := countsOf(t, a).since(before); got != (counts{started: 1, killed: 1}) {
		t.Errorf("counts: %+v", got)
	}
	// The record has the cause.
	events := a.Events(t, lines[0].Process, "").All(t)
	if end := rig.End(t, events); end.Cause != "timeout" || end.Signal == nil || *end.Signal != 9 {
		t.Errorf("record's end: %s", end.Raw)
	}
}

// TestNDJSONKeepalivesOnRequest covers C-039: a stream sends keepalives only at the interval
// that its client requests.
func TestNDJSONKeepalivesOnRequest(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	body := map[string]any{"cmd": "sleep 2.5"}
	frequent := a.Stream(t, http.MethodPost, "/commands", body, "E2b-Sandbox-Id", box.ID, "Keepalive-Ping-Interval", "1").All(t)
	n := 0
	for _, l := range frequent {
		if l.Type == "keepalive" && l.Seq == 0 {
			n++
		}
	}
	if n < 1 || n > 3 {
		t.Errorf("%d keepalives:\n%s", n, raws(frequent))
	}
	if lines := a.Stream(t, http.MethodPost, "/commands", body, "E2b-Sandbox-Id", box.ID).All(t); len(lines) != 2 {
		t.Errorf("without a requested interval:\n%s", raws(lines))
	}
}

// TestMetricNames covers C-040: the metrics have the documented names and types.
func TestMetricNames(t *testing.T) {
	a := api(t)
	ans := a.Want(t, http.StatusOK, http.MethodGet, "/metrics", nil)
	if ct := ans.Header.Get("Content-Type"); !strings.HasPrefix(ct, "text/plain; version=0.0.4") {
		t.Errorf("content type %q", ct)
	}
	for _, want := range []string{
		"# TYPE coppice_commands_started_total counter\n",
		"# TYPE coppice_commands_finished_total counter\n",
		"# TYPE coppice_commands_active gauge\n",
		"coppice_commands_started_total ",
		`coppice_commands_finished_total{status="ok"} `,
		`coppice_commands_finished_total{status="error"} `,
		`coppice_commands_finished_total{status="killed"} `,
		"coppice_commands_active ",
	} {
		if !bytes.Contains(ans.Body, []byte("\n"+want)) && !bytes.HasPrefix(ans.Body, []byte(want)) {
			t.Errorf("no line %q", want)
		}
	}
	if n := bytes.Count(ans.Body, []byte("\ncoppice_commands_finished_total{")); n != 3 {
		t.Errorf("%d statuses", n)
	}
	countsOf(t, a)
}

// TestActiveCountFollowsStartsAndEnds covers C-041: the active count rises with each start,
// falls with each end, and is never negative.
func TestActiveCountFollowsStartsAndEnds(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	before := quiet(t, a)
	ok := a.StartSpec(t, box.ID, spec("/bin/cat", nil, "stdin", true))
	bad := a.StartSpec(t, box.ID, spec("/bin/bash", []string{"-c", "cat; exit 1"}, "stdin", true))
	victim := a.StartStream(t, box.ID, "sleep 60")
	pids := map[*rig.Raw]uint32{}
	for i, r := range []*rig.Raw{ok, bad, victim} {
		pids[r] = r.Started(t).Event.Start.PID
		if got := countsOf(t, a).since(before); got.active > float64(3) || got.active < float64(i+1) {
			t.Errorf("after %d starts: %+v", i+1, got)
		}
	}
	for _, step := range []struct {
		r      *rig.Raw
		method string
		more   []any
		want   counts
	}{
		{ok, "CloseStdin", nil, counts{3, 1, 0, 0, 2}},
		{bad, "CloseStdin", nil, counts{3, 1, 1, 0, 1}},
		{victim, "SendSignal", []any{"signal", "SIGNAL_SIGKILL"}, counts{3, 1, 1, 1, 0}},
	} {
		a.RPC(t, box.ID, "/process.Process/"+step.method, byPID(pids[step.r], step.more...))
		rest(t, step.r)
		if got := countsOf(t, a).since(before); got != step.want {
			t.Errorf("after %s: %+v, want %+v", step.method, got, step.want)
		}
	}
}

// TestCountsSurviveARestart covers C-042: the counts are computed from the log, so a restart
// does not change them.
func TestCountsSurviveARestart(t *testing.T) {
	u := rig.NewUp(t, rig.Options{})
	box := u.Create(t)
	u.StartStream(t, box.ID, "true").All(t)
	u.StartStream(t, box.ID, "exit 1").All(t)
	r := u.StartStream(t, box.ID, "sleep 60")
	u.RPC(t, box.ID, "/process.Process/SendSignal", byPID(r.Started(t).Event.Start.PID, "signal", "SIGNAL_SIGKILL"))
	rest(t, r)
	u.StartStream(t, box.ID, "sleep 60").Started(t)
	want := counts{4, 1, 1, 1, 1}
	if got := countsOf(t, u.API); got != want {
		t.Errorf("before: %+v, want %+v", got, want)
	}
	u.Kill9()
	if err := u.Restart(); err != nil {
		t.Fatal(err)
	}
	if got := countsOf(t, u.API); got != want {
		t.Errorf("after kill -9 and restart: %+v, want %+v", got, want)
	}
	u.Kill(t, box.ID)
	if got := countsOf(t, u.API); got.started != 4 || got.active != 0 {
		t.Errorf("after the sandbox: %+v", got)
	}
}

// TestSurfaceWithoutIsolation covers C-043: without isolation the surface is the same.
func TestSurfaceWithoutIsolation(t *testing.T) {
	u := rig.NewUp(t, rig.Options{Driver: "direct"})
	box := u.Create(t)
	run := u.StartStream(t, box.ID, "seq 1 3; exit 3").All(t)
	if run.Stdout() != "1\n2\n3\n" || run.End == nil || run.End.ExitCode != 3 {
		t.Errorf("%q %+v", run.Stdout(), run.End)
	}
	r := u.StartStream(t, box.ID, "sleep 1234 & sleep 1234")
	pid := r.Started(t).Event.Start.PID
	u.RPC(t, box.ID, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGKILL"))
	if end, _ := rest(t, r); end == nil || end.Status != "signal: killed" {
		t.Errorf("killed: %+v", end)
	}
	tty, pid := startPTY(t, u.API, box.ID, "stty size; cat", 100, 30)
	until(t, tty, "30 100")
	u.RPC(t, box.ID, "/process.Process/SendInput", byPID(pid, "input", keys("x\x04\x04")))
	rest(t, tty)
	lines := u.Commands(t, box.ID, "echo out; echo err >&2; exit 2").All(t)
	if end := rig.End(t, lines); *end.ExitCode != 2 || rig.Output(lines, "stdout") != "out\n" || rig.Output(lines, "stderr") != "err\n" {
		t.Errorf("NDJSON:\n%s", raws(lines))
	}
	countsOf(t, u.API)
}

// TestExecuteStreamsNDJSON covers C-044: /execute streams NDJSON and ends every execution;
// commands beside it work as usual.
func TestExecuteStreamsNDJSON(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	ans := a.Do(t, http.MethodPost, "/execute", map[string]any{"code": "print(1)"}, "E2b-Sandbox-Id", box.ID)
	if ans.Status != http.StatusOK || !strings.HasPrefix(ans.Header.Get("Content-Type"), "application/x-ndjson") {
		t.Fatalf("/execute: %s %v", ans.Header.Get("Content-Type"), ans)
	}
	lines := strings.Split(strings.TrimSuffix(string(ans.Body), "\n"), "\n")
	var types []string
	for _, l := range lines {
		var o struct{ Type, Text string }
		if err := json.Unmarshal([]byte(l), &o); err != nil {
			t.Errorf("not an object: %q", l)
		}
		types = append(types, o.Type+o.Text)
	}
	if got := strings.Join(types, " "); got != "number_of_executions stdout1\n end_of_execution" {
		t.Errorf("lines: %q", got)
	}
	cmd := a.Commands(t, box.ID, "echo beside").All(t)
	if out := rig.Output(cmd, "stdout"); out != "beside\n" {
		t.Errorf("a command beside: %q", out)
	}
}

// TestLongLineArrivesWhole covers C-045: one line of 8 MiB arrives unchanged.
func TestLongLineArrivesWhole(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	const size = 8 << 20
	cmd := fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; echo", size)
	want := append(bytes.Repeat([]byte("x"), size), '\n')
	for name, headers := range map[string][]string{"in pieces": nil, "whole": {"X-Line-Flush", "never"}} {
		run := a.StartStream(t, box.ID, cmd, headers...).All(t)
		if !bytes.Equal(run.Out["stdout"], want) {
			t.Errorf("%s: %d bytes", name, len(run.Out["stdout"]))
		}
		if n := len(dataEvents(run)); headers != nil && n != 1 {
			t.Errorf("%s: %d events", name, n)
		}
	}
	lines := a.Commands(t, box.ID, cmd).All(t)
	if out := rig.Output(lines, "stdout"); out != string(want) {
		t.Errorf("NDJSON: %d bytes", len(out))
	}
}

// TestSlowReaderLosesNothing covers C-046: a reader of 1 MB/s loses nothing, uses little
// memory, and delays neither the process nor other readers.
func TestSlowReaderLosesNothing(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	const size = 200 << 20
	slowFor := 4 << 20
	if os.Getenv(EnvSoak) != "" {
		slowFor = size // 1.3 MB/s for all of it: three minutes
	}
	r := a.StartStream(t, box.ID, fmt.Sprintf("head -c %d /dev/urandom | base64 -w 1023 | head -c %d", size, size))
	pid := r.Started(t).Event.Start.PID
	sum, n := sha256.New(), 0
	slow := time.NewTicker(100 * time.Millisecond)
	defer slow.Stop()
	peak := 0
	end, words := restOf(t, r, func(b []byte) {
		sum.Write(b)
		before := n
		if n += len(b); n>>17 > before>>17 && n < slowFor {
			<-slow.C // 128 KiB per 0.1 s
		}
		if n>>24 > before>>24 {
			peak = max(peak, memory(t, sharedUp(t).PID()))
		}
	})
	if n != size || end == nil || end.ExitCode != 0 || words != "{}" {
		t.Fatalf("%d bytes, end %+v, last %s", n, end, words)
	}
	again := sha256.New()
	restOf(t, a.ConnectTo(t, box.ID, pid), func(b []byte) { again.Write(b) })
	if !bytes.Equal(sum.Sum(nil), again.Sum(nil)) {
		t.Error("a second reader reads different output")
	}
	// NATS keeps blocks in memory for ten seconds after their last use.
	if peak > 1<<30 {
		t.Errorf("%d MiB of memory", peak>>20)
	}
	t.Logf("peak %d MiB", peak>>20)
}

// memory returns the size of a process's resident set.
func memory(t *testing.T, pid int) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(raw), "\n")
	i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "VmRSS:") })
	var kib int
	if i < 0 {
		t.Fatal("no VmRSS")
	}
	if _, err := fmt.Sscanf(lines[i], "VmRSS: %d kB", &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
