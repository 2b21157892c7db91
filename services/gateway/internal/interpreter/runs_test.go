package interpreter

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// testRun is a run whose process runs on this machine.
type testRun struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (c *testContext) begin(run Run) *testRun {
	c.t.Helper()
	return c.prepare(run).start()
}

// prepare returns a run that has not started.
func (c *testContext) prepare(run Run) *testRun {
	c.t.Helper()
	args, err := run.args(c.address, c.Language)
	if err != nil {
		c.t.Fatal(err)
	}
	r := &testRun{t: c.t, cmd: exec.CommandContext(c.t.Context(), "python3", args...)}
	r.cmd.Dir, r.cmd.SysProcAttr = c.t.TempDir(), &syscall.SysProcAttr{Setpgid: true}
	return r
}

func (r *testRun) start() *testRun {
	r.t.Helper()
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		r.t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.out = bufio.NewReader(out)
	r.t.Cleanup(func() {
		syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
		r.cmd.Wait()
	})
	return r
}

// until returns what a run prints up to a line of a type.
func (r *testRun) until(last string) string {
	r.t.Helper()
	var got strings.Builder
	for {
		raw, err := r.out.ReadString('\n')
		if err != nil {
			r.t.Fatalf("after %q: %v", got.String(), err)
		}
		var l struct {
			Type, Text, Name string
			Code             int
			Password         bool
		}
		if err := json.Unmarshal([]byte(raw), &l); err != nil {
			r.t.Fatalf("%q: %v", raw, err)
		}
		switch l.Type {
		case "stdout", "stderr":
			got.WriteString(l.Text)
		case "result":
			got.WriteString("=" + l.Text)
		case "error":
			got.WriteString("!" + l.Name)
		case "input":
			fmt.Fprintf(&got, "<%v>", l.Password)
		case "step":
			fmt.Fprintf(&got, "[%s %d]", l.Name, l.Code)
		case "end_of_execution":
			fmt.Fprintf(&got, ".%d", l.Code)
		}
		if l.Type == last {
			return got.String()
		}
	}
}

const endOfRun = "end_of_execution"

// Code reads the input of its run, and the run reports that it waits.
func TestRunsReadInput(t *testing.T) {
	t.Parallel()
	for language, code := range map[string]string{
		"python": "import getpass, sys\na = input('a? ')\nb = getpass.getpass('b? ')\nc = sys.stdin.readline()\nprint(a, b, c, end='')",
		"bash":   "printf 'a? '; read a; printf 'b? '; read -s b; read c; echo $a $b $c; echo other | { read d; echo -n $d; }",
		"r":      "a <- readline('a? '); b <- readline('b? '); c <- readline(); cat(a, b, c)",
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath("R"); err != nil && language == "r" {
				t.Skip(err)
			}
			c := newContext(t, newSandbox(), "c", language)
			for range 2 {
				r := c.begin(Run{Code: code})
				if got := r.until("input"); got != "a? <false>" {
					t.Fatalf("first %q", got)
				}
				io.WriteString(r.in, "one\n")
				if got := r.until("input"); !strings.HasPrefix(got, "b? <") || language != "r" && got != "b? <true>" {
					t.Errorf("second %q", got)
				}
				io.WriteString(r.in, "ä b\n")
				if got := r.until("input"); got != "<false>" {
					t.Errorf("third %q", got)
				}
				io.WriteString(r.in, "three\n")
				if got := r.until(endOfRun); !strings.HasPrefix(got, "one ä b three") || !strings.HasSuffix(got, ".0") || language == "bash" && !strings.Contains(got, "other") {
					t.Errorf("at the end %q", got)
				}
			}
			// An execution of the code interpreter has no input, before and after a run.
			if got := c.run(map[string]string{"python": "print(repr(__import__('sys').stdin.readline()))", "bash": "read x; echo got $x", "r": "cat(readline())"}[language]); got != map[string]string{"python": "''\n", "bash": "got\n", "r": ""}[language] {
				t.Errorf("without input: %q", got)
			}
		})
	}
}

// A run that is interrupted ends with 130, and the next one has the definitions from before.
func TestRunsAreInterrupted(t *testing.T) {
	t.Parallel()
	for language, codes := range map[string][3]string{
		"python": {"x = 7", "import time\nprint('begun')\ntime.sleep(100)", "x"},
		"bash":   {"x=7", "echo begun; sleep 100", "echo $x"},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			c := newContext(t, newSandbox(), "c", language)
			if got := c.begin(Run{Code: codes[0]}).until(endOfRun); got != ".0" {
				t.Errorf("first %q", got)
			}
			r := c.begin(Run{Code: codes[1]})
			r.until("stdout")
			next := c.begin(Run{Code: codes[2]}) // waits for its turn
			syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT)
			if got := r.until(endOfRun); !strings.HasSuffix(got, ".130") {
				t.Errorf("interrupted: %q", got)
			}
			if got := next.until(endOfRun); language == "python" && got != "=7.0" || !strings.HasSuffix(got, ".0") {
				t.Errorf("after the interrupt: %q", got)
			}
		})
	}
}

// An interrupt is not lost when it arrives before the code begins.
func TestRunsAreInterruptedBeforeTheirCode(t *testing.T) {
	t.Parallel()
	for language, code := range map[string]string{"python": "import time\ntime.sleep(1e6)", "bash": "sleep 1000000"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			c := newPatientContext(t, newSandbox(), "c", language, 1_000_000)
			for range 20 {
				conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: "@millrace-context-" + c.address, Net: "unix"})
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				raw, err := json.Marshal(map[string]any{"code": code, "env_vars": map[string]string{}})
				if err != nil {
					t.Fatal(err)
				}
				conn.Write(append(raw, '\n'))
				conn.CloseWrite() // what the process of a run does when it is interrupted
				got, err := io.ReadAll(conn)
				if err != nil || !strings.Contains(string(got), `"name":"KeyboardInterrupt"`) {
					t.Fatalf("%q, %v", got, err)
				}
			}
		})
	}
}

// An interrupt ends a run that waits for input, whose code gets neither an empty line nor the end of
// the input.
func TestRunsAreInterruptedInTheirInput(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ code, want string }{
		"bash":             {`read -p 'delete? [Y/n]' x; [ "$x" = n ] || echo done`, ".130"},
		"bash, a password": {"read -s x; echo done", ".130"},
		"bash, a loop":     {"while ! read x; do echo again; done", ".130"},
		"python":           {"input()", "!KeyboardInterrupt.130"},
		"python, caught":   {"try:\n    input()\nexcept EOFError:\n    print('done')", "!KeyboardInterrupt.130"},
		"python, stdin":    {"import sys\nprint('done', sys.stdin.readline())", "!KeyboardInterrupt.130"},
		"r":                {"x <- readline(); cat('done')", "!interrupt.130"},
		"r, handled":       {"tryCatch(readline(), interrupt = function(e) cat('handled'))", "handled.0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			language, _, _ := strings.Cut(name, ",")
			if _, err := exec.LookPath("R"); err != nil && language == "r" {
				t.Skip(err)
			}
			c := newPatientContext(t, newSandbox(), "c", language, 1_000_000)
			for range 5 {
				r := c.begin(Run{Code: tt.code})
				r.until("input")
				syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT)
				if got := r.until(endOfRun); got != tt.want {
					t.Fatalf("interrupted: %q, want %q", got, tt.want)
				}
			}
		})
	}
}

// The end of the input is not an interrupt.
func TestRunsReadToTheEndOfTheirInput(t *testing.T) {
	t.Parallel()
	for language, code := range map[string]string{
		"python": "try:\n    input()\nexcept EOFError:\n    print('done', end='')",
		"bash":   "read x; echo -n done",
		"r":      "x <- readline(); cat('done')",
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath("R"); err != nil && language == "r" {
				t.Skip(err)
			}
			r := newContext(t, newSandbox(), "c", language).begin(Run{Code: code})
			r.until("input")
			r.in.Close()
			if got := r.until(endOfRun); got != "done.0" {
				t.Error(got)
			}
		})
	}
}

func TestRunsHaveExitCodes(t *testing.T) {
	t.Parallel()
	for language, codes := range map[string]map[string]string{
		"python": {"1/0": "!ZeroDivisionError.1", "print('a')": "a\n.0", "import os; os._exit(3)": "!KernelDied.130"},
		"bash":   {"echo a; false": "a\n.1", "(exit 42)": ".42", "echo b": "b\n.0", "echo c; exit 3": "c\n.3", "exit": ".0", "kill -9 $$": "!KernelDied.130"},
	} {
		c := newContext(t, newSandbox(), "c", language)
		for code, want := range codes {
			if got := c.begin(Run{Code: code}).until(endOfRun); got != want {
				t.Errorf("%s: %s: %q, want %q", language, code, got, want)
			}
		}
	}
}

// Modules in the working directory are the user's: a run does not import them.
func TestRunsIgnoreModulesOfTheUser(t *testing.T) {
	t.Parallel()
	c := newContext(t, newSandbox(), "c", "bash")
	for _, run := range []Run{{Code: "echo a"}, {Batch: &Batch{Exec: "echo a"}}} {
		r := c.prepare(run)
		for _, name := range []string{"json", "_socket", "selectors", "subprocess"} {
			if err := os.WriteFile(filepath.Join(r.cmd.Dir, name+".py"), []byte("1/0"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := r.start().until(endOfRun); !strings.HasSuffix(got, "a\n.0") {
			t.Errorf("%+v: %q", run, got)
		}
	}
}

// B-027: a batch has three steps, and the kernel runs nothing meanwhile.
func TestRunsOfBatches(t *testing.T) {
	t.Parallel()
	c := newContext(t, newSandbox(), "c", "python")
	for _, tt := range []struct {
		batch Batch
		want  string
	}{
		{Batch{Build: "echo b; echo e >&2", Exec: "printf '\\303'; printf '\\244'; exit 3"}, "[clean 0]b\ne\n[build 0]ä.3"},
		{Batch{Clean: "*", Build: "*", Exec: "*"}, "[clean 0][build 0].0"},
		{Batch{Build: "echo b; exit 2", Exec: "echo never"}, "[clean 0]b\n[build 2].127"},
		{Batch{Exec: "echo a >main.sh; sh -c 'kill -2 $$'"}, "[clean 0][build 0].130"},
		{Batch{Exec: "sleep 100 & echo left"}, "[clean 0][build 0]left\n.0"},
	} {
		if got := c.begin(Run{Batch: &tt.batch}).until(endOfRun); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.batch, got, tt.want)
		}
	}
	r := c.begin(Run{Batch: &Batch{Exec: "echo begun; read x; echo $x"}})
	r.until("stdout")
	next := c.begin(Run{Code: "print('next')"})
	io.WriteString(r.in, "line\n")
	if got := r.until(endOfRun); !strings.HasSuffix(got, "line\n.0") {
		t.Errorf("with input: %q", got)
	}
	if got := next.until(endOfRun); got != "next\n.0" {
		t.Errorf("the next run: %q", got)
	}
	r = c.begin(Run{Batch: &Batch{Exec: "echo begun; sleep 100"}})
	r.until("stdout")
	syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT)
	if got := r.until(endOfRun); got != ".130" {
		t.Errorf("interrupted: %q", got)
	}
	if got := c.begin(Run{Code: "print('again')"}).until(endOfRun); got != "again\n.0" {
		t.Errorf("after the interrupt: %q", got)
	}
}
