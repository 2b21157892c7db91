package e2e_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// typeIn sends input to a terminal.
func typeIn(t *testing.T, a *rig.API, sandbox string, pid uint32, s string) {
	t.Helper()
	if ans := a.RPC(t, sandbox, "/process.Process/SendInput", byPID(pid, "input", keys(s))); ans.Status != http.StatusOK {
		t.Fatalf("type %q: %v", s, ans)
	}
}

// TestOutOfMemoryIsACause covers A15: running out of memory is a cause of its own, and ends no
// other process.
func TestOutOfMemoryIsACause(t *testing.T) {
	onlySandboxed(t)
	if os.Geteuid() != 0 {
		t.Skip("without a cgroup only the memory of each process is limited")
	}
	a := api(t)
	box := a.Create(t, "memoryMB", 64)
	other := a.Commands(t, box.ID, "sleep 2; echo lives")
	run := a.StartStream(t, box.ID, "tail /dev/zero").All(t)
	end := rig.End(t, a.Events(t, run.Process, "").All(t))
	if kernelOfItsOwn(t) {
		if end.Cause != "shim_lost" || end.ExitCode != nil || !strings.Contains(end.Raw, "memory") {
			t.Errorf("end of a sandbox that used up its memory: %s", end.Raw)
		}
		return
	}
	if end.Cause != "oom" || end.Signal == nil || *end.Signal != 9 {
		t.Errorf("end: %s, Connect has %+v", end.Raw, run.End)
	}
	if end := rig.End(t, other.All(t)); end.ExitCode == nil || *end.ExitCode != 0 {
		t.Errorf("its neighbor: %s", end.Raw)
	}
}

// TestSharedMemoryIsBounded covers E84: files in memory belong to no process, so the kernel
// ends the largest process for them; that is not the shim.
func TestSharedMemoryIsBounded(t *testing.T) {
	onlySandboxed(t)
	if os.Geteuid() != 0 {
		t.Skip("without a cgroup only the memory of each process is limited")
	}
	if kernelOfItsOwn(t) {
		t.Skip("a sandbox that uses up its memory ends as a whole")
	}
	a := api(t)
	box := a.Create(t, "memoryMB", 64)
	for range 3 {
		a.StartStream(t, box.ID, "cat /dev/zero > /dev/shm/full").All(t)
		if ans := a.RPC(t, box.ID, fsService+"Remove", map[string]any{"path": "/dev/shm/full"}); ans.Status != http.StatusOK {
			t.Fatalf("remove: %v", ans)
		}
		run := a.StartStream(t, box.ID, "echo lives").All(t)
		if end := rig.End(t, a.Events(t, run.Process, "").All(t)); end.ExitCode == nil || *end.ExitCode != 0 {
			t.Fatalf("the next command: %s", end.Raw)
		}
	}
}

// TestMemoryBombIsBounded covers E84: a memory bomb ends at its limit every time, and its
// neighbor keeps responding.
func TestMemoryBombIsBounded(t *testing.T) {
	onlySandboxed(t)
	a := api(t)
	box, beside := a.Create(t, "memoryMB", 64).ID, a.Create(t, "memoryMB", 64).ID
	for range 3 {
		bomb := a.Commands(t, box, "head -c 1g /dev/zero | tail; echo ${PIPESTATUS[1]}")
		for range 5 {
			undisturbed(t, a, beside, "a bomb of memory")
		}
		lines := bomb.All(t)
		end := rig.End(t, lines)
		if got := strings.TrimSpace(outputOf(lines)); got == "0" {
			t.Errorf("it allocated its gigabyte: %s", end.Raw)
		}
		if a.Do(t, http.MethodGet, "/sandboxes/"+box, nil).Status == http.StatusNotFound { // a sandbox with its own kernel ends with it
			box = a.Create(t, "memoryMB", 64).ID
			continue
		}
		undisturbed(t, a, box, "a bomb of memory in the same sandbox")
	}
	undisturbed(t, a, beside, "a bomb of memory")
}

// cmdlines returns the processes of the host whose arguments contain a text.
func cmdlines(text string) (pids []string) {
	procs, _ := os.ReadDir("/proc")
	for _, p := range procs {
		b, err := os.ReadFile("/proc/" + p.Name() + "/cmdline")
		if err == nil && bytes.Contains(bytes.ReplaceAll(b, []byte{0}, []byte{' '}), []byte(text)) && p.Name() != "self" {
			pids = append(pids, p.Name())
		}
	}
	return pids
}

// TestDaemonEndsWithItsSandbox covers A17: a daemon leaves its process tree, but ends with its
// sandbox.
func TestDaemonEndsWithItsSandbox(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	unique := fmt.Sprintf("sleep %d.%d", 1000000+os.Getpid(), time.Now().UnixNano()%1000000)
	began := time.Now()
	run := a.StartStream(t, box.ID, "setsid sh -c '("+unique+" >/dev/null 2>&1 &) ; exit' ; echo done; exit 4").All(t)
	if d := time.Since(began); run.Stdout() != "done\n" || run.End == nil || run.End.ExitCode != 4 || d > 5*time.Second {
		t.Errorf("after %v: %q, %+v", d, run.Stdout(), run.End)
	}
	count := `for p in /proc/[0-9]*; do test "$(tr '\0' ' ' 2>/dev/null < $p/cmdline)" = "` + unique + ` " && echo there; done`
	if out := a.StartStream(t, box.ID, count).All(t).Stdout(); out != "there\n" {
		t.Errorf("processes of one daemon: %q", out)
	}
	a.Kill(t, box.ID)
	if !rig.Poll(5*time.Second, func() bool { return len(cmdlines(unique)) == 0 }) {
		t.Errorf("the daemon outlived its sandbox: %v", cmdlines(unique))
	}
}

// TestTerminalResize covers A20: a terminal follows a storm of resizes.
func TestTerminalResize(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	r, pid := startPTY(t, a, box.ID, "while read x; do stty size; done", 80, 24)
	resize := func(cols, rows int) {
		t.Helper()
		if ans := a.RPC(t, box.ID, "/process.Process/Update", byPID(pid, "pty", pty(cols, rows))); ans.Status != http.StatusOK {
			t.Fatalf("resize to %dx%d: %v", cols, rows, ans)
		}
	}
	resize(4000, 2000)
	typeIn(t, a, box.ID, pid, "\n")
	until(t, r, "2000 4000\r\n")
	resize(0, 0)
	typeIn(t, a, box.ID, pid, "\n")
	until(t, r, "0 0\r\n")
	began := time.Now()
	const storm = 1000
	for i := range storm {
		resize(100+i%50, 20+i%30)
	}
	took := time.Since(began)
	resize(81, 25)
	typeIn(t, a, box.ID, pid, "\n")
	until(t, r, "25 81\r\n")
	t.Logf("%.0f resizes a second", storm/took.Seconds())
}

// shell starts bash on a terminal and returns after its prompt.
func shell(t *testing.T, a *rig.API, box string) (r *rig.Raw, pid uint32) {
	t.Helper()
	r = a.StartSpec(t, box, map[string]any{
		"process": map[string]any{"cmd": "/bin/bash", "args": []string{"--norc", "-i"}, "envs": map[string]string{"PS1": "$ ", "TERM": "dumb"}},
		"pty":     pty(80, 24),
	})
	pid = r.Started(t).Event.Start.PID
	until(t, r, "$ ")
	return r, pid
}

// TestTerminalControlCharacters covers A21: control characters act on a terminal.
func TestTerminalControlCharacters(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	r, pid := shell(t, a, box.ID)
	// The output differs from the input, so that it proves that the command runs.
	const busy = "sh -c 'echo ru\"\"ns; exec sleep 100'\r"
	typeIn(t, a, box.ID, pid, busy)
	until(t, r, "\nruns\r\n")
	typeIn(t, a, box.ID, pid, "\x03")
	until(t, r, "$ ")
	typeIn(t, a, box.ID, pid, "echo c=$?\r")
	until(t, r, "\nc=130\r\n")
	typeIn(t, a, box.ID, pid, busy)
	until(t, r, "\nruns\r\n")
	typeIn(t, a, box.ID, pid, "\x1a")
	until(t, r, "Stopped")
	typeIn(t, a, box.ID, pid, "echo z=$?; kill %1\r")
	until(t, r, "\nz=148\r\n")
	typeIn(t, a, box.ID, pid, "sh -c 'echo ru\"\"ns; exec cat'; echo d=$?\r")
	until(t, r, "\nruns\r\n")
	typeIn(t, a, box.ID, pid, "line\r\x04")
	until(t, r, "\nd=0\r\n")
	if !kernelOfItsOwn(t) { // gVisor's terminals do not support XOFF
		// XOFF stops the output, XON continues it.
		typeIn(t, a, box.ID, pid, "stty -echo ixon\r")
		until(t, r, "$ ")
		typeIn(t, a, box.ID, pid, "\x13echo held\r")
		held := make(chan string, 1)
		go func() {
			defer close(held) // also if the stream ends
			held <- until(t, r, "held\r\n")
		}()
		select {
		case s := <-held:
			t.Errorf("output after XOFF: %q", s)
		case <-time.After(300 * time.Millisecond):
			typeIn(t, a, box.ID, pid, "\x11")
			<-held
		}
	}
	typeIn(t, a, box.ID, pid, "exit 9\r")
	if end, _ := rest(t, r); end == nil || end.ExitCode != 9 {
		t.Errorf("end: %+v", end)
	}
}

// TestEscapeSequencesPassUnchanged covers A22: escape sequences pass through unchanged and
// have no effect on the way.
func TestEscapeSequencesPassUnchanged(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	nasty := "\x1b[2J\x1b[H\x1b[31m\x1b]52;c;aGVsbG8=\x07\x1b]0;title\x07\x1b[?1049h\x1b[6n\x1b]8;;http://x\x1b\\\x1b[0c\x9b31m\x00\xff\xfe\x1bP+q544e\x1b\\"
	const rounds = 3000
	cmd := "stty raw -echo; b=$(mktemp); printf %s " + base64.StdEncoding.EncodeToString([]byte(nasty)) +
		fmt.Sprintf(" | base64 -d > $b; for i in $(seq 1 %d); do cat $b; done | cat", rounds)
	r, _ := startPTY(t, a, box.ID, cmd, 200, 60)
	var out []byte
	end, _ := restOf(t, r, func(b []byte) { out = append(out, b...) })
	if want := strings.Repeat(nasty, rounds); string(out) != want || end == nil || end.ExitCode != 0 {
		t.Errorf("%d bytes, want %d; end %+v", len(out), len(want), end)
	}
	if n := len(bytes.TrimSpace([]byte(a.StartStream(t, box.ID, "command -v top vim").All(t).Stdout()))); n > 0 {
		r, pid := startPTY(t, a, box.ID, "top -d 0.1", 120, 40)
		until(t, r, "PID")
		for i := range 20 {
			a.RPC(t, box.ID, "/process.Process/Update", byPID(pid, "pty", pty(60+i*3, 20+i)))
		}
		typeIn(t, a, box.ID, pid, "q")
		var lastOutput []byte
		end, _ := restOf(t, r, func(b []byte) { lastOutput = append(lastOutput, b...) })
		// A resize while top writes to a full terminal interrupts the write, as on any
		// terminal, and top then exits with an error.
		if gaveUp := bytes.Contains(lastOutput, []byte("top: write error")); end == nil || end.ExitCode != 0 && !gaveUp {
			t.Errorf("top: %+v, its last output %q", end, lastOutput[max(0, len(lastOutput)-300):])
		}
	}
}

// TestUnreadInputIsBounded covers A23: input that the process does not read is delayed or
// rejected, and takes no memory; the process can still be ended.
func TestUnreadInputIsBounded(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	r := a.StartSpec(t, box.ID, spec("/bin/bash", []string{"-c", "while :; do head -c 1 >/dev/null; sleep 1; done"}, "stdin", true))
	pid := r.Started(t).Event.Start.PID
	before := memory(t, sharedUp(t).PID())
	chunk := stdin(bytes.Repeat([]byte("x"), 1<<20))
	var mu sync.Mutex
	codes := map[string]int{}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			ans, err := a.Call(http.MethodPost, "/process.Process/SendInput", byPID(pid, "input", chunk),
				"E2b-Sandbox-Id", box.ID, "Connect-Timeout-Ms", "2000")
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				codes[err.Error()]++
			case ans.Status == http.StatusOK:
				codes["ok"]++
			default:
				codes[fmt.Sprintf("%d %.60s", ans.Status, ans.Body)]++
			}
		})
	}
	wg.Wait()
	for c := range codes {
		if c != "ok" && !strings.Contains(c, "resource_exhausted") && !strings.Contains(c, "deadline_exceeded") {
			t.Errorf("responses: %v", codes)
		}
	}
	if codes["ok"] > 6 {
		t.Errorf("all of the unread input was accepted: %v", codes)
	}
	if grown := memory(t, sharedUp(t).PID()) - before; grown > 400<<20 {
		t.Errorf("%d MiB of memory", grown>>20)
	}
	if ans := a.RPC(t, box.ID, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGKILL")); ans.Status != http.StatusOK {
		t.Errorf("SendSignal: %v", ans)
	}
	if end, _ := rest(t, r); end == nil {
		t.Error("no end")
	}
}

// Killing a terminal's shell ends its foreground process, which has a group of its own, but
// not processes that ignore SIGHUP.
func TestTerminalKillEndsTheForeground(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	r, pid := shell(t, a, box.ID)
	typeIn(t, a, box.ID, pid, "nohup sleep 4242 > /dev/null 2>&1 &\r")
	until(t, r, "$ ")
	typeIn(t, a, box.ID, pid, "sh -c 'echo ru\"\"ns; exec sleep 2424'\r")
	until(t, r, "\nruns\r\n")
	if ans := a.RPC(t, box.ID, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGKILL")); ans.Status != http.StatusOK {
		t.Fatalf("kill: %v", ans)
	}
	runs := func(what string) bool {
		_, code := outputAndCode(t, a, box.ID, "pgrep -fx '"+what+"'")
		return code == 0
	}
	if !rig.Poll(20*time.Second, func() bool { return !runs("sleep 2424") }) {
		t.Error("the foreground process runs")
	}
	if !runs("sleep 4242") {
		t.Error("the process that ignores SIGHUP ended")
	}
}
