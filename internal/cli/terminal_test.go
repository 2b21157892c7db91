package cli

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/cli/clitest"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
)

// answers lists queries to a terminal and its answers.
var answers = []struct{ query, answer string }{
	{"\x1b[6n", "\x1b[1;1R"},
	{"\x1b[c", "\x1b[?62c"},
	{"\x1b]11;?\x07", "\x1b]11;rgb:00/00/00\x07"},
	{"\x1bP$qm\x1b\\", "\x1bP1$r0m\x1b\\"},
}

// terminal is a pseudo-terminal whose other end answers queries like a terminal.
type terminal struct {
	t      *testing.T
	user   *os.File // the user's end
	tty    *os.File // the program's end
	mu     sync.Mutex
	screen bytes.Buffer
	shown  chan struct{} // receives a value when screen grows
}

func newTerminal(t *testing.T, cols, rows uint16) *terminal {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.SetNonblock(fd, true)
	user := os.NewFile(uintptr(fd), "terminal") // non-blocking, so that Close does not wait for a Read
	master.Close()
	if err := pty.Setsize(tty, &pty.Winsize{Cols: cols, Rows: rows}); err != nil {
		t.Fatal(err)
	}
	x := &terminal{t: t, user: user, tty: tty, shown: make(chan struct{}, 1)}
	t.Cleanup(func() { user.Close(); tty.Close() })
	go x.read()
	return x
}

func (x *terminal) read() {
	buf := make([]byte, 4096)
	answered := 0
	for {
		n, err := x.user.Read(buf)
		if err != nil {
			return
		}
		x.mu.Lock()
		x.screen.Write(buf[:n])
		for again := true; again; {
			again = false
			for _, a := range answers {
				if i := bytes.Index(x.screen.Bytes()[answered:], []byte(a.query)); i >= 0 {
					answered += i + len(a.query)
					x.user.WriteString(a.answer)
					again = true
				}
			}
		}
		x.mu.Unlock()
		select {
		case x.shown <- struct{}{}:
		default:
		}
	}
}

// await waits until the screen shows s.
func (x *terminal) await(s string) {
	x.t.Helper()
	late := time.After(20 * time.Second)
	for !strings.Contains(x.text(), s) {
		select {
		case <-x.shown:
		case <-late:
			x.t.Fatalf("the screen never showed %q: %q", s, x.text())
		}
	}
}

func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.screen.String()
}

func (x *terminal) press(s string) {
	x.t.Helper()
	if _, err := x.user.WriteString(s); err != nil {
		x.t.Fatal(err)
	}
}

// start runs a command at the terminal.
func (x *terminal) start(g *fakeGateway, args ...string) <-chan result {
	done := make(chan result, 1)
	env := map[string]string{"MILLRACE_URL": g.Server.URL, "MILLRACE_API_KEY": "e2b_00", "TERM": "xterm"}
	cfg := command.Config{In: x.tty, Out: x.tty, Err: x.tty, LookupEnv: func(k string) (v string, ok bool) { v, ok = env[k]; return }}
	all := Commands(cfg)
	i := slices.IndexFunc(all, func(c *cobra.Command) bool { return c.Name() == args[0] })
	c := all[i]
	c.SetArgs(args[1:])
	c.SilenceErrors = true
	go func() {
		code, say := output.ExitCode(c.ExecuteContext(x.t.Context()))
		done <- result{code: code, say: say}
	}()
	return done
}

func ptyEvent(s string) string { return fmt.Sprintf(`{"type":"pty","offset":0,"data":%q}`, s) }

var queries = `a\u001b[6nb\u001b[cc\u001b]11;?\u0007d\u001bP$qm\u001b\\e`

// Output from before the attach is shown without its queries, so that no answer becomes
// input. A later query is answered once, also if the connection breaks within the history
// and after the query.
func TestAttachAnswersLiveQueriesOnly(t *testing.T) {
	g := newFakeGateway(t, `{"type":"accepted"}`, `{"type":"start","pid":7}`,
		`{"type":"pty","offset":0,"data":"`+queries+`"}`, `{"type":"pty","offset":0,"data":"half \u001b[6"}`, `{"type":"pty","offset":0,"data":"n end of history"}`)
	g.PTY = true
	g.CutAfter[4], g.CutAfter[6] = true, true
	typed := make(chan struct{}, 9)
	g.OnInput = func([]byte, bool) { typed <- struct{}{} }
	x := newTerminal(t, 100, 30)
	done := x.start(g, "attach", clitest.ProcessID)
	x.await("abcde")
	x.await(" end of history")
	g.Grow(`{"type":"pty","offset":0,"data":"now\u001b[6n"}`)
	<-typed
	x.press("x")
	<-typed
	g.Grow(`{"type":"end","exit_code":3,"signal":null,"cause":"exited"}`)
	if r := <-done; r.code != 3 || g.Stdin.String() != "\x1b[1;1Rx" {
		t.Errorf("exit %d %s; input of the process %q", r.code, r.say, g.Stdin.String())
	}
	if n := strings.Count(x.text(), "\x1b[6n"); n != 1 {
		t.Errorf("the live query was shown %d times: %q", n, x.text())
	}
}

// The terminal of a process gets the local size before any output is shown, and follows
// later changes.
func TestAttachSetsTheSizeAtOnce(t *testing.T) {
	g := newFakeGateway(t, `{"type":"accepted"}`, `{"type":"start","pid":7}`, ptyEvent("hello"))
	g.PTY = true
	x := newTerminal(t, 132, 43)
	done := x.start(g, "attach", clitest.ProcessID)
	x.await("hello")
	g.Mu.Lock()
	if want := []string{"events now", "size 132x43", "events 0"}; !slices.Equal(g.Order, want) {
		t.Errorf("requests %q; want %q", g.Order, want)
	}
	g.Mu.Unlock()
	g.Grow(`{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)
	if r := <-done; r.code != 0 {
		t.Errorf("exit %d %s", r.code, r.say)
	}
}

// Detaching exits with 0: the sandbox stays with its lifetime, and the command to attach
// again is printed.
func TestRunDetaches(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave func(*terminal)
	}{
		{"by its keys", func(x *terminal) { x.press("\x10\x11") }},
		{"when its terminal closes", func(x *terminal) { x.user.Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newFakeGateway(t, `{"type":"accepted"}`, `{"type":"start","pid":7}`, ptyEvent("$ "))
			x := newTerminal(t, 80, 24)
			done := x.start(g, "run", "-it", "--lifetime", "2h", "bash")
			x.await("$ ")
			tt.leave(x)
			if r := <-done; r.code != 0 || r.say != "" {
				t.Errorf("exit %d %q", r.code, r.say)
			}
			if len(g.Removed) > 0 || !slices.Equal(g.Timeouts, []int64{600, 7200}) || g.Stdin.Len() > 0 {
				t.Errorf("removed %v, lifetimes %v, input %q", g.Removed, g.Timeouts, g.Stdin.String())
			}
			if tt.name == "by its keys" {
				x.await("Attach again: millrace attach " + clitest.ProcessID)
				x.await("sandbox iabc ends in 2h0m0s, at ")
				if strings.Contains(x.text(), "cancel") {
					t.Errorf("screen %q", x.text())
				}
			}
		})
	}
}

func TestAttachDetaches(t *testing.T) {
	g := newFakeGateway(t, `{"type":"accepted"}`, `{"type":"start","pid":7}`, ptyEvent("$ "))
	g.PTY = true
	typed := make(chan struct{}, 9)
	g.OnInput = func([]byte, bool) { typed <- struct{}{} }
	x := newTerminal(t, 80, 24)
	done := x.start(g, "attach", clitest.ProcessID)
	x.await("$ ")
	x.press("\x10") // reaches the process without another key
	<-typed
	x.press("\x11")
	if r := <-done; r.code != 0 || r.say != "" || g.Stdin.String() != "\x10" {
		t.Errorf("exit %d %q, input %q", r.code, r.say, g.Stdin.String())
	}
	x.await("Attach again: millrace attach " + clitest.ProcessID)
}

// logs shows no query at a terminal: the answer would become input of the user's shell.
func TestLogsShowNoTerminalQueries(t *testing.T) {
	g := newFakeGateway(t, `{"type":"accepted"}`, `{"type":"pty","offset":0,"data":"`+queries+`"}`, `{"type":"stdout","offset":0,"data":"`+queries+`"}`,
		`{"type":"stderr","offset":0,"data":"`+queries+` the end"}`)
	x := newTerminal(t, 80, 24)
	if r := <-x.start(g, "logs", clitest.ProcessID); r.code != 0 {
		t.Errorf("exit %d %s", r.code, r.say)
	}
	x.await("the end")
	if got := x.text(); got != "abcdeabcdeabcde the end" {
		t.Errorf("screen %q", got)
	}
}

// Untrusted text is shown without terminal queries, also in JSON, which does not escape C1
// controls, and in messages, which may quote a command.
func TestNoOutputHasTerminalQueries(t *testing.T) {
	const csi = "\u009b6n" // as two bytes, which terminals read as ESC [ 6 n
	g := newFakeGateway(t, `{"type":"accepted","cmd":"`+csi+`"}`, `{"type":"error","error_code":"invalid","message":"no \u001b[6n`+csi+`"}`,
		`{"type":"end","exit_code":null,"signal":null,"cause":"not_started"}`)
	for _, args := range [][]string{{"logs", "--json", clitest.ProcessID}, {"logs", clitest.ProcessID}, {"attach", "-n", clitest.ProcessID}, {"events", "tail", "--json", "--no-follow"}} {
		x := newTerminal(t, 80, 24)
		<-x.start(g, args...)
		x.await("6n")
		if got := x.text(); strings.Contains(got, csi) || strings.Contains(got, "\x1b[6n") || !strings.Contains(got, "\ufffd6n") {
			t.Errorf("%v: the screen shows %q", args, got)
		}
	}
}
