package cli

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Callers of run must not take Millrace's own failure for the command's.
func TestInvalidCommandLineExits125(t *testing.T) {
	for _, args := range [][]string{{"run"}, {"run", "--nonsense", "x"}, {"run", "--lifetime", "0", "x"}, {"attach"}, {"attach", "a", "b"}} {
		if got := verb(t, nil, strings.NewReader(""), args...); got.code != ExitMillrace || got.say == "" {
			t.Errorf("%q: exit %d %q", args, got.code, got.say)
		}
	}
}

// gone returns a pipe whose reader has closed, as after `| head`.
func gone(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	t.Cleanup(func() { w.Close() })
	return w
}

func TestRunEndsWithItsReader(t *testing.T) {
	tests := []struct {
		name    string
		args    []string
		removed []string
		signals []int
	}{
		{"its own sandbox is removed", []string{"-n", "x"}, []string{"iabc"}, nil},
		{"in another sandbox the command gets SIGPIPE", []string{"-n", "-s", "iabc", "x"}, nil, []int{int(unix.SIGPIPE)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newFakeGateway(t, short[:3]...) // the process keeps running
			a := &app{Config: Config{In: strings.NewReader(""), Out: gone(t), Err: io.Discard, LookupEnv: func(string) (string, bool) { return "", false }}, url: g.srv.URL, key: "e2b_00"}
			c := a.runCommand()
			c.SetArgs(tt.args)
			c.SilenceErrors, c.SilenceUsage = true, true
			code, _ := ExitCode(c.ExecuteContext(t.Context()))
			g.mu.Lock()
			defer g.mu.Unlock()
			if code != exitSignal+int(unix.SIGPIPE) || !slices.Equal(g.removed, tt.removed) || !slices.Equal(g.signals, tt.signals) {
				t.Errorf("exit %d, removed %v, signals %v", code, g.removed, g.signals)
			}
		})
	}
}

const asRun = "MILLRACE_TEST_AS_RUN"

// Neither an interrupt during the create nor a closed standard output may leave the
// sandbox behind. Both end a whole process, so the test runs itself as one.
func TestAProcessThatEndsEarlyRemovesItsSandbox(t *testing.T) {
	if url := os.Getenv(asRun); url != "" {
		a := &app{Config: Config{In: strings.NewReader(""), Out: os.Stdout, Err: os.Stderr, LookupEnv: func(string) (string, bool) { return "", false }}, url: url, key: "e2b_00"}
		c := a.runCommand()
		c.SetArgs([]string{"-n", "x"})
		code, say := ExitCode(c.ExecuteContext(t.Context()))
		fmt.Fprintln(os.Stderr, say)
		os.Exit(code)
	}
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGPIPE} {
		t.Run(sig.String(), func(t *testing.T) {
			g := newFakeGateway(t, short[:3]...)
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAProcessThatEndsEarlyRemovesItsSandbox$")
			child.Env = append(os.Environ(), asRun+"="+g.srv.URL)
			begun := make(chan struct{})
			if sig == unix.SIGPIPE {
				child.Stdout = gone(t)
			} else {
				g.locked(func() {
					g.fail["POST /commands"] = 1 << 30 // the start never succeeds
					g.onCreate = func() {
						<-begun
						child.Process.Signal(sig)
					}
				})
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			close(begun)
			child.Wait()
			g.mu.Lock()
			defer g.mu.Unlock()
			if code := child.ProcessState.ExitCode(); code != exitSignal+int(sig) || !slices.Equal(g.removed, []string{"iabc"}) {
				t.Errorf("exit %d, removed %v", code, g.removed)
			}
		})
	}
}
