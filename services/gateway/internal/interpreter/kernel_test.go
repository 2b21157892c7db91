package interpreter

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// testContext is a context whose kernel runs on this machine.
type testContext struct {
	*codeContext
	t      *testing.T
	record *bufio.Reader // standard output of its kernel, after the first line
}

// newContext starts a kernel, which ends with the test.
func newContext(t *testing.T, sbx sandbox.ID, id, language string) *testContext {
	t.Helper()
	return newPatientContext(t, sbx, id, language, 1)
}

// newPatientContext returns a context whose kernel is killed some seconds after an interrupt that it
// ignores.
func newPatientContext(t *testing.T, sbx sandbox.ID, id, language string, seconds int) *testContext {
	t.Helper()
	spec := kernelSpec(sbx, id, language, "")
	if _, err := exec.LookPath(spec.Cmd); err != nil {
		t.Skip(err)
	}
	for i, a := range spec.Args {
		spec.Args[i] = strings.Replace(a, "PATIENCE = 10 ", fmt.Sprintf("PATIENCE = %d ", seconds), 1)
	}
	cmd := exec.CommandContext(t.Context(), spec.Cmd, spec.Args...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		os.Remove(filepath.Join(os.TempDir(), ".millrace-context-"+addressOf(sbx, id)))
	})
	record := bufio.NewReader(out)
	if got, err := record.ReadString('\n'); got != ready {
		t.Fatalf("the kernel printed %q, %v", got, err)
	}
	in, ok := contextOf(&process.Summary{Spec: spec})
	if !ok {
		t.Fatalf("not the tag of a context: %v", spec.Tag)
	}
	return &testContext{&in, t, record}
}

// exec returns the process of an execution.
func (c *testContext) exec(code string) *exec.Cmd {
	c.t.Helper()
	spec, err := execSpec(c.codeContext, code, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.CommandContext(c.t.Context(), spec.Cmd, spec.Args...)
	for k, v := range spec.Env {
		cmd.Env = append(cmd.Environ(), k+"="+v)
	}
	if spec.Stdin {
		cmd.Stdin = strings.NewReader(code)
	}
	return cmd
}

// run runs code and returns its output, its results, and the name of its error.
func (c *testContext) run(code string) string {
	c.t.Helper()
	raw, err := c.exec(code).Output()
	if err != nil {
		return fmt.Sprintf("%s: %v", raw, err)
	}
	var out strings.Builder
	for l := range strings.Lines(string(raw)) {
		var is struct{ Type, Text, Name string }
		if err := json.Unmarshal([]byte(l), &is); err != nil {
			c.t.Errorf("%q: %v", l, err)
		}
		switch is.Type {
		case "stdout", "stderr":
			out.WriteString(is.Text)
		case "result":
			out.WriteString("=" + is.Text)
		case "error":
			out.WriteString("!" + is.Name)
		}
	}
	return out.String()
}

var sandboxes atomic.Int64

func newSandbox() sandbox.ID {
	return sandbox.ID(fmt.Sprintf("itest%d.%d", time.Now().UnixNano(), sandboxes.Add(1)))
}

// Whatever code does to its kernel, the next code runs normally.
func TestAKernelSurvivesHostileCode(t *testing.T) {
	t.Parallel()
	slashes := strings.Repeat("/", 120)
	for language, codes := range map[string][][2]string{
		"python": {
			{"class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E()", "!E"},
			{"import os; os.system(\"printf '%65535s' x; printf 'ää'\"); None", strings.Repeat(" ", 65534) + "xää"},
			{"os.close(1); os.close(2); print('on')", "on\n"},
			{"print('still')", "still\n"},
		},
		"javascript": {
			{slashes + "\n1", "=1"},
			{strings.Repeat("/* a */ ", 60) + "2", "=2"},
			{"// a\r\n/* b */import os from 'node:os'\ntypeof os.cpus", "=function"},
			{"({ get toHTML() { throw new Error('no') } })", "=Object"},
			{"setTimeout(() => { throw null }); await new Promise((r) => setTimeout(r, 50)); 3", "null\n=3"},
		},
		"bash": {
			{"printf 'ä%.0s' {1..40000} | wc -m >/dev/null; echo one", "one\n"},
			{"exit 3", "!RuntimeError"},
			{"echo two", "two\n"},
		},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			c := newContext(t, newSandbox(), "one", language)
			for _, tt := range codes {
				if got := c.run(tt[0]); got != tt[1] {
					t.Errorf("%.80q: %.200q, want %.200q", tt[0], got, tt[1])
				}
			}
		})
	}
}

// Code whose client has disconnected does not block the next execution.
func TestADisconnectedClientLeavesTheQueue(t *testing.T) {
	t.Parallel()
	c := newContext(t, newSandbox(), "one", "javascript")
	first := c.exec("globalThis.go = 0; while (!(await import('node:fs')).existsSync(process.env.GO || '')) await new Promise((r) => setTimeout(r, 5))")
	started := startUntil(t, first, "number_of_executions")
	second := c.exec("globalThis.go = 2; await new Promise(() => {})")
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	end(second)
	end(started)
	if got := c.run("go"); got != "=0" {
		t.Errorf("after a disconnect in the queue: %q", got)
	}
}

// printed is in the line with which code prints "on". The word alone is in the line before
// the code begins, too: number_of_executions.
const printed = `"text":"on`

// startUntil starts an execution and waits for a line that contains what.
func startUntil(t *testing.T, cmd *exec.Cmd, what string) *exec.Cmd {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for r := bufio.NewReader(out); ; {
		switch l, err := r.ReadString('\n'); {
		case strings.Contains(l, what):
			return cmd
		case err != nil:
			t.Fatalf("it printed %q, %v", l, err)
		}
	}
}

func end(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}

// Without isolation, the sandboxes of a host have their contexts in one directory, and each
// its default contexts.
func TestSandboxesWithoutIsolationHaveTheirOwnContexts(t *testing.T) {
	t.Parallel()
	for _, language := range []string{"python", "javascript"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			id := defaultPrefix + language
			one, two := newContext(t, newSandbox(), id, language), newContext(t, newSandbox(), id, language)
			for n, c := range []*testContext{one, two} {
				if got := c.run(fmt.Sprintf("x = %d; x", n)); got != fmt.Sprintf("=%d", n) {
					t.Errorf("in %d: %q", n, got)
				}
			}
			if got := one.run("x"); got != "=0" {
				t.Errorf("in 0, after 1: %q", got)
			}
		})
	}
}

// Variables that no process can have are rejected.
func TestInvalidVariablesAreRejected(t *testing.T) {
	for _, name := range []string{"", "A=B", "A\x00"} {
		if _, err := execSpec(&codeContext{ID: "one"}, "1", map[string]string{name: "x"}); !kind.Is(err, kind.Invalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := execSpec(&codeContext{ID: "one"}, "1", map[string]string{"A": "\x00"}); !kind.Is(err, kind.Invalid) {
		t.Errorf("a NUL in a value: %v", err)
	}
}

// Code may have any size and contain any character.
func TestCodeThatDoesNotFitIntoArguments(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 1<<20)
	for language, codes := range map[string][][2]string{
		"python":     {{"len('" + long + "')", "=1048576"}, {"'a\x00b'", "!SyntaxError"}},
		"javascript": {{"'" + long + "'.length", "=1048576"}, {"'a\x00b'.length", "=3"}},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			newContext(t, newSandbox(), "one", language).check(codes)
		})
	}
}

// The kernel of a context in the home of root runs as a user that may enter it.
func TestKernelUserFollowsTheCwd(t *testing.T) {
	for cwd, want := range map[string]string{"": "", "/tmp": "", "~": "", "~root": "", "/root": "root", "/root/a/..": "root", "/roots": "", "/root/../tmp": "", "../../root": "root"} {
		if got := kernelSpec("s", "one", "python", cwd).User; got != want {
			t.Errorf("%q: user %q, want %q", cwd, got, want)
		}
	}
}

// The error of a request fits into the status line.
func TestPhrase(t *testing.T) {
	for message, want := range map[string]string{"more than 3 bytes": "more than 3 bytes", "a\r\nSet-Cookie: b\x7fä": "a Set-Cookie: b??", strings.Repeat("x", 300): strings.Repeat("x", 200)} {
		if got := phrase(message); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}
