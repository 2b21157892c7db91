package cli

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
)

// Callers of run must not take Millrace's own failure for the command's.
func TestInvalidCommandLineExits125(t *testing.T) {
	for _, args := range [][]string{{"run"}, {"run", "--nonsense", "x"}, {"run", "--lifetime", "0", "x"}, {"attach"}, {"attach", "a", "b"}} {
		if got := verb(t, nil, strings.NewReader(""), args...); got.code != output.ExitMillrace || got.say == "" {
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

// runCommand returns the command run for a gateway.
func runCommand(url string, out, errOut io.Writer) *cobra.Command {
	env := map[string]string{"MILLRACE_URL": url, "MILLRACE_API_KEY": "e2b_00"}
	all := Commands(command.Config{In: strings.NewReader(""), Out: out, Err: errOut, LookupEnv: func(k string) (v string, ok bool) { v, ok = env[k]; return }})
	return all[slices.IndexFunc(all, func(c *cobra.Command) bool { return c.Name() == "run" })]
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
			c := runCommand(g.Server.URL, gone(t), io.Discard)
			c.SetArgs(tt.args)
			c.SilenceErrors, c.SilenceUsage = true, true
			code, _ := output.ExitCode(c.ExecuteContext(t.Context()))
			g.Mu.Lock()
			defer g.Mu.Unlock()
			if code != output.ExitSignal+int(unix.SIGPIPE) || !slices.Equal(g.Removed, tt.removed) || !slices.Equal(g.Signals, tt.signals) {
				t.Errorf("exit %d, removed %v, signals %v", code, g.Removed, g.Signals)
			}
		})
	}
}

const asRun = "MILLRACE_TEST_AS_RUN"

// Neither an interrupt during the create nor a closed standard output may leave the
// sandbox behind. Both end a whole process, so the test runs itself as one.
func TestAProcessThatEndsEarlyRemovesItsSandbox(t *testing.T) {
	if url := os.Getenv(asRun); url != "" {
		c := runCommand(url, os.Stdout, os.Stderr)
		c.SetArgs([]string{"-n", "x"})
		code, say := output.ExitCode(c.ExecuteContext(t.Context()))
		fmt.Fprintln(os.Stderr, say)
		os.Exit(code)
	}
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGPIPE} {
		t.Run(sig.String(), func(t *testing.T) {
			g := newFakeGateway(t, short[:3]...)
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAProcessThatEndsEarlyRemovesItsSandbox$")
			child.Env = append(os.Environ(), asRun+"="+g.Server.URL)
			begun := make(chan struct{})
			if sig == unix.SIGPIPE {
				child.Stdout = gone(t)
			} else {
				g.Locked(func() {
					g.Fail["POST /commands"] = 1 << 30 // the start never succeeds
					g.OnCreate = func() {
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
			g.Mu.Lock()
			defer g.Mu.Unlock()
			if code := child.ProcessState.ExitCode(); code != output.ExitSignal+int(sig) || !slices.Equal(g.Removed, []string{"iabc"}) {
				t.Errorf("exit %d, removed %v", code, g.Removed)
			}
		})
	}
}
