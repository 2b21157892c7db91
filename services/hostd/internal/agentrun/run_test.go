package agentrun

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// newAgent returns an agent with files of the test and a program with the given script.
func newAgent(t *testing.T, script string) (a agent, values map[string]string, signals chan os.Signal, stdout, stderr *strings.Builder) {
	t.Helper()
	dir := t.TempDir()
	cmd := filepath.Join(dir, "agent")
	if err := os.WriteFile(cmd, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, signals = new(strings.Builder), new(strings.Builder), make(chan os.Signal, 1)
	a = agent{config: filepath.Join(dir, "env.json"), result: filepath.Join(dir, "result.txt"), exit: filepath.Join(dir, "agent.exit"), signals: signals, stdout: stdout, stderr: stderr}
	return a, map[string]string{"AGENT_TYPE": "deictic", "AGENT_CMD": cmd}, signals, stdout, stderr
}

func content(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func TestResultAndExitCode(t *testing.T) {
	a, values, _, stdout, stderr := newAgent(t, "printf out; printf err >&2; exit 3")
	r, w := io.Pipe()
	defer w.Close()
	if code := a.supervise(values, os.Environ(), r); code != 3 {
		t.Errorf("code %d", code)
	}
	if got := content(t, a.result); got != "out" || stdout.String() != "out" || stderr.String() != "err" {
		t.Errorf("the result is %q, the outputs are %q and %q", got, stdout, stderr)
	}
	if got := content(t, a.exit); got != "3\n" {
		t.Errorf("the exit code is %q", got)
	}
}

// E-143: what the program itself writes to the result stays, and what it prints later follows.
func TestAResultThatTheProgramWrites(t *testing.T) {
	a, values, _, _, _ := newAgent(t, `echo begun; until [ -s "$RESULT" ]; do sleep 0.01; done; echo own >"$RESULT"; echo end`)
	r, w := io.Pipe()
	defer w.Close()
	if code := a.supervise(values, append(os.Environ(), "RESULT="+a.result), r); code != 0 || content(t, a.result) != "own\nend\n" {
		t.Errorf("code %d, %q", code, content(t, a.result))
	}
}

// The program is killed when the agent's process has ended.
func TestTheEndOfTheAgentsProcess(t *testing.T) {
	a, values, _, _, _ := newAgent(t, "echo begun; exec sleep 600")
	r, w := io.Pipe()
	a.stdout = writer(func() { w.Close() })
	if code := a.supervise(values, os.Environ(), r); code != 128+9 || content(t, a.exit) != "137\n" || content(t, a.result) != "begun\n" {
		t.Errorf("code %d", code)
	}
}

// A signal is passed on to the program.
func TestSignals(t *testing.T) {
	a, values, signals, _, _ := newAgent(t, "trap 'echo wrapped; exit 5' TERM; echo begun; while :; do sleep 0.01; done")
	r, w := io.Pipe()
	defer w.Close()
	var once sync.Once
	a.stdout = writer(func() { once.Do(func() { signals <- syscall.SIGTERM }) })
	if code := a.await(0); code == 0 {
		t.Error("it handles signals before it runs")
	}
	if code := a.supervise(values, os.Environ(), r); code != 5 || content(t, a.result) != "begun\nwrapped\n" {
		t.Errorf("code %d, %q", code, content(t, a.result))
	}
	if code := a.await(0); code != 0 {
		t.Errorf("await: code %d", code)
	}
}

// writer calls a function for each write.
type writer func()

func (w writer) Write(p []byte) (int, error) { w(); return len(p), nil }

// A result that cannot be written makes an agent fail, whatever its program returns.
func TestAResultThatIsNotWhole(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	whole := &lenient{w: mustOpen(t, "/dev/full")}
	if n, err := whole.Write([]byte("x")); n != 1 || err != nil || whole.err == nil {
		t.Errorf("%d, %v, %v", n, err, whole.err)
	}
	a, values, _, _, stderr := newAgent(t, "exit 0")
	if err := os.Mkdir(a.result, 0o700); err != nil {
		t.Fatal(err)
	}
	if code := a.supervise(values, os.Environ(), strings.NewReader("")); code != 1 || !strings.Contains(stderr.String(), "result.txt") {
		t.Errorf("code %d, %q", code, stderr)
	}
}

func mustOpen(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestProgramsThatCannotBeRun(t *testing.T) {
	for _, tt := range []struct {
		values map[string]string
		code   int
	}{
		{map[string]string{"AGENT_TYPE": "zzz"}, notFound},
		{map[string]string{"AGENT_CMD": "/missing"}, notFound},
		{map[string]string{"AGENT_CMD": "/dev/null"}, notRun},
	} {
		a, _, _, _, stderr := newAgent(t, "")
		if code := a.supervise(tt.values, os.Environ(), strings.NewReader("")); code != tt.code || stderr.Len() == 0 {
			t.Errorf("%v: code %d, %q", tt.values, code, stderr)
		}
	}
}

func TestPrograms(t *testing.T) {
	const unsafeCodex = "codex exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox"
	large := strings.Repeat("x", maxArgument+1)
	for _, tt := range []struct {
		values      map[string]string
		argv, stdin string
	}{
		{map[string]string{"AGENT_TYPE": "deictic", "AGENT_CMD": "/home/user/a", "TASK": "t"}, "/home/user/a", ""},
		{map[string]string{"AGENT_TYPE": "claude-code", "TASK": "t"}, "claude --print --dangerously-skip-permissions -- t", ""},
		{map[string]string{"AGENT_TYPE": "claude-code", "LLM_MODEL": "claude-x", "TASK": large}, "claude --print --dangerously-skip-permissions --model claude-x", large},
		{map[string]string{"AGENT_TYPE": "codex", "TASK": "-t"}, unsafeCodex + " -- -t", ""},
		{map[string]string{"AGENT_TYPE": "codex", "TASK": large, "SESSION_ID": "s"}, unsafeCodex + " resume s -", large},
		{map[string]string{"AGENT_TYPE": "codex", "TASK": "t", "OPENAI_BASE_URL": "http://m/v1"}, unsafeCodex + ` --config openai_base_url="http://m/v1" -- t`, ""},
	} {
		p, err := new(agent).programOf(tt.values)
		if got := strings.Join(p.argv, " "); err != nil || got != tt.argv || p.stdin != tt.stdin {
			t.Errorf("%q, %v", got, err)
		}
	}
}
