package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// onlyWithQuickDrivers skips tests that start a server with the driver gvisor, which may build its
// program first.
func onlyWithQuickDrivers(t *testing.T) {
	t.Helper()
	if kernelOfItsOwn(t) {
		t.Skip("the driver may have to build its program first")
	}
}

// execServerCommand returns an exec-server with a temporary directory of its own.
func execServerCommand(ctx context.Context, t *testing.T, args ...string) (cmd *exec.Cmd, temp string) {
	t.Helper()
	temp = t.TempDir()
	cmd = exec.CommandContext(ctx, rig.Binary(t), append([]string{"exec-server", "--driver", rig.Driver(t)}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "TMPDIR=" + temp}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd, temp
}

// a session over standard input and output, at whose end nothing is left.
func TestExecServerStdio(t *testing.T) {
	t.Parallel()
	onlyWithQuickDrivers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd, temp := execServerCommand(ctx, t)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	// next returns the first message that contains a text.
	next := func(text string) codexMessage {
		t.Helper()
		for lines.Scan() {
			var m codexMessage
			if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
				t.Fatalf("not a message: %q", lines.Bytes())
			}
			if m.Params.Method = m.Method; strings.Contains(lines.Text(), text) {
				return m
			}
		}
		t.Fatalf("no %s: %v", text, lines.Err())
		return codexMessage{}
	}
	fmt.Fprintln(in, `{"id":1,"method":"initialize","params":{"clientName":"e2e"}}`)
	next(`"sessionId"`)
	fmt.Fprintln(in, `{"method":"initialized"}`)
	fmt.Fprintln(in, `{"id":2,"method":"process/start","params":{"processId":"p","argv":["sh","-c","echo hi; exit 4"],"cwd":"/tmp","env":{"PATH":"/usr/bin:/bin"},"tty":false}}`)
	if m := next("process/output"); string(m.Params.Chunk) != "hi\n" {
		t.Errorf("%+v", m.Params)
	}
	if m := next("process/exited"); m.Params.ExitCode == nil || *m.Params.ExitCode != 4 {
		t.Errorf("%+v", m.Params)
	}
	next("process/closed")
	mark := fmt.Sprintf("%d.%d", os.Getpid(), time.Now().Nanosecond())
	fmt.Fprintf(in, `{"id":3,"method":"process/start","params":{"processId":"q","argv":["sleep","%s"],"cwd":"/tmp","env":{"PATH":"/usr/bin:/bin"},"tty":false}}`+"\n", mark)
	next(`"id":3`)
	in.Close()
	for lines.Scan() {
	}
	must(t, cmd.Wait())
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if out, err := exec.CommandContext(ctx, "pgrep", "-f", "sleep "+mark).Output(); err == nil {
		t.Errorf("the process still runs: %s", out)
	}
}

// Without any input it ends once it was ready, so that a driver has built what it needs.
func TestExecServerPrepares(t *testing.T) {
	t.Parallel()
	onlyWithQuickDrivers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd, temp := execServerCommand(ctx, t)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// an address without credentials, on loopback.
func TestExecServerListens(t *testing.T) {
	t.Parallel()
	onlyWithQuickDrivers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd, temp := execServerCommand(ctx, t, "--listen", "ws://127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	r := bufio.NewReader(out)
	url, err := r.ReadString('\n')
	must(t, err)
	a := &rig.API{URL: "http" + strings.TrimPrefix(strings.TrimSpace(url), "ws")}
	a.Want(t, http.StatusOK, http.MethodGet, "/readyz", nil)
	a.Want(t, http.StatusBadRequest, http.MethodGet, "/", nil)
	a.Want(t, http.StatusNotFound, http.MethodGet, "/sandboxes", nil)
	if _, status, _ := tryCodex(ctx, a, "/", "Origin", a.URL); status != http.StatusForbidden {
		t.Errorf("a page: %d", status)
	}
	c := dialCodex(t, a, "/")
	session := c.begin("")
	c.start("p", "echo one; read l; echo $l", "tty", true)
	c.prints("p", "pty", "one")
	c.ws.Close()
	c = dialCodex(t, a, "/")
	if !rig.Poll(codexTimeout, func() bool {
		return c.ask("initialize", codexArgs{"clientName": "e2e", "resumeSessionId": session}).Error == nil
	}) {
		t.Fatal("the session cannot be resumed")
	}
	cmd.Cancel()
	must(t, cmd.Wait())
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// The released CLI starts the exec-server itself.
func TestExecServerCLI(t *testing.T) {
	t.Parallel()
	onlyWithQuickDrivers(t)
	m := newCodexModel(t, runCommand("echo in $E2B_SANDBOX_ID; exit 5"))
	home, dir := t.TempDir(), t.TempDir()
	launcher := rig.Codex(t, "0.169")
	writeCodexConfig(t, home, dir, m.URL)
	must(t, os.WriteFile(filepath.Join(home, "environments.toml"), fmt.Appendf(nil, `default = "millrace"
include_local = false
[[environments]]
id = "millrace"
program = %q
args = ["exec-server", "--driver", %q]
env = { HOME = %q }
initialize_timeout_sec = 60
`, rig.Binary(t), rig.Driver(t), home), 0o600))
	r := runCodex(t, launcher, home, dir)
	if got := r.wait(t, m)[0]; !strings.Contains(got, "in i") || !strings.Contains(got, "code 5") {
		t.Errorf("%q\n%s", got, r.out)
	}
}
