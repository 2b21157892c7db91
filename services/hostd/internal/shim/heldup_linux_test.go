package shim_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/shim"
	"github.com/millrace/millrace/services/hostd/internal/spawn/spawntest"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// leased gives a script that can be executed only once let was called.
func leased(t *testing.T) (path string, let func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nread a; echo got $a\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, spawntest.Lease(t, path)
}

// failed is why a process never ran; nil: it did.
func (h *host) failed(token string) *process.Failed {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.procs[token].events {
		if f, ok := e.Body.(process.Failed); ok {
			return &f
		}
	}
	return nil
}

// A process that is held up before it is its program holds up no other, nor hostd that
// comes anew; what is said to it meanwhile waits, and is done once and in order.
func TestAStartIsHeldUpAlone(t *testing.T) {
	h := connected(t)
	other := h.start(sh("trap 'echo heard' TERM; echo ready; while :; do sleep 0.05; done"))
	h.awaitOutput(other, "ready")
	path, let := leased(t)
	held := h.start(process.Spec{Cmd: path, Stdin: true})
	input := wire.AppendStdin(nil, &wire.Stdin{Rev: h.nextRev(), Token: held, Command: "one", Data: []byte("a")})
	h.send(input)
	last := h.stdin(held, " b\n", true)
	h.settle()
	if r := h.awaitReply(h.signal(other, int32(syscall.SIGTERM))); r.Error != "" {
		t.Errorf("a signal to another: %+v", r)
	}
	h.awaitOutput(other, "heard")
	if p := h.awaitEnd(h.start(sh("echo hello"))); string(p.out[process.Stdout]) != "hello\n" {
		t.Errorf("another start: %q", p.out[process.Stdout])
	}
	h.connect()
	h.send(input)
	h.settle()
	h.mu.Lock()
	if _, answered := h.replies[last]; answered || len(h.procs[held].events) > 0 {
		t.Errorf("it is not held up: %+v", h.procs[held].events)
	}
	h.mu.Unlock()
	let()
	h.awaitReply(last)
	if p := h.awaitEnd(held); string(p.out[process.Stdout]) != "got a b\n" || describe(p.exit) != "exited 0" {
		t.Errorf("it says %q, %s", p.out[process.Stdout], describe(p.exit))
	}
}

// Whoever holds up the starts of one user holds up no other user's, however many.
func TestStartsOfOneUserAreHeldUpAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root starts processes of others")
	}
	socket, _ := startShim(t, "-execute", "1h")
	h := newHost(t, socket)
	h.connect()
	path, let := leased(t)
	if err := os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755); err != nil {
		t.Fatal(err)
	}
	var held []string
	for range 2 * shim.MaxStarts {
		held = append(held, h.start(process.Spec{Cmd: path, User: "nobody"}))
	}
	h.settle()
	h.awaitEnd(h.start(sh("exit 0")))
	h.mu.Lock()
	for _, token := range held {
		if n := len(h.procs[token].events); n > 0 {
			t.Errorf("one was not held up: %d events", n)
		}
	}
	h.mu.Unlock()
	let()
	for _, token := range held {
		if p := h.awaitEnd(token); describe(p.exit) != "exited 0" {
			t.Errorf("it was held up and then %s, %+v", describe(p.exit), h.failed(token))
		}
	}
}

// It is not held up for ever.
func TestAStartHasATimeLimit(t *testing.T) {
	socket, _ := startShim(t, "-execute", "200ms")
	h := newHost(t, socket)
	h.connect()
	path, _ := leased(t)
	held := h.start(process.Spec{Cmd: path, Stdin: true})
	said := h.stdin(held, "a\n", true)
	h.awaitEnd(held)
	f := h.failed(held)
	if f == nil || kind.Kind(f.Kind) != kind.Unavailable || !strings.Contains(f.Message, "could not be executed within 200ms") {
		t.Errorf("it failed with %+v", f)
	}
	if r := h.awaitReply(said); r.Kind != kind.NotFound {
		t.Errorf("input to it: %+v", r)
	}
	h.awaitEnd(h.start(sh("exit 0")))
}

// What waits for a process is bounded.
func TestCommandsThatWaitForAStartAreBounded(t *testing.T) {
	h := connected(t)
	path, let := leased(t)
	held := h.start(process.Spec{Cmd: path, Stdin: true})
	var last uint64
	for range 5 {
		last = h.stdin(held, strings.Repeat("x", 1<<20), false)
	}
	if r := h.awaitReply(last); r.Kind != kind.Exhausted {
		t.Errorf("got %+v, want Exhausted", r)
	}
	for _, size := range []int{1 << 18, 1 << 16, 1 << 14, 1 << 12, 1 << 10, 1} { // until there is room for nothing
		for refused := false; !refused; {
			rev := h.stdin(held, strings.Repeat("x", size), false)
			h.settle()
			h.mu.Lock()
			_, refused = h.replies[rev]
			h.mu.Unlock()
		}
	}
	end := h.signal(held, int32(syscall.SIGKILL))
	h.settle()
	let()
	if r := h.awaitReply(end); r.Error != "" {
		t.Errorf("a signal: %+v", r)
	}
	h.awaitEnd(held)
}

// What waits for a process is sent again to a connection that is made anew, and counts once.
func TestCommandsThatWaitForAStartComeAgain(t *testing.T) {
	h := connected(t)
	path, let := leased(t)
	held := h.start(process.Spec{Cmd: path, Stdin: true})
	var frames [][]byte
	var revs []uint64
	for range 3 {
		f := wire.Stdin{Rev: h.nextRev(), Token: held, Command: "c", Data: bytes.Repeat([]byte("x"), 1<<20)}
		frames, revs = append(frames, wire.AppendStdin(nil, &f)), append(revs, f.Rev)
	}
	for range 3 {
		for _, f := range frames {
			h.send(f)
		}
		h.settle()
		h.connect()
	}
	h.mu.Lock()
	for _, rev := range revs {
		if r, answered := h.replies[rev]; answered {
			t.Errorf("command %d was answered: %+v", rev, r)
		}
	}
	h.mu.Unlock()
	h.signal(held, int32(syscall.SIGKILL))
	let()
	h.awaitEnd(held)
}

// It ends with the sandbox, with a reboot, and when hostd forgets it.
func TestAStartThatIsHeldUpEnds(t *testing.T) {
	for _, how := range []string{"End", "Reboot", "Forget"} {
		t.Run(how, func(t *testing.T) {
			h := connected(t)
			path, _ := leased(t)
			held := h.start(process.Spec{Cmd: path, Stdin: true})
			h.settle()
			switch how {
			case "Reboot":
				h.send(wire.AppendReboot(nil))
				h.settle()
				h.awaitEnd(held)
			case "Forget":
				h.mu.Lock()
				delete(h.procs, held)
				h.mu.Unlock()
				h.send(wire.AppendForget(nil, held))
			}
			h.send(wire.AppendEnd(nil))
			h.await("the end of the sandbox", func() bool { return h.ended })
			if how == "End" {
				h.awaitEnd(held)
			}
		})
	}
}

// In another sandbox it starts without what was said to it in the first. A watch that waits
// for it is nobody's there.
func TestAStartThatIsHeldUpMoves(t *testing.T) {
	h := connected(t)
	path, let := leased(t)
	var held []string
	for range 2 * shim.MaxStarts {
		held = append(held, h.start(process.Spec{Cmd: path, Stdin: true}))
	}
	h.stdin(held[0], "a\n", false)
	h.settle()
	watch := h.start(process.Spec{Cmd: file.WatchCmd, Args: []string{"/", "0s"}})
	h.settle()
	o := h.elsewhere(false, held...)
	if o.moved[watch] != nil {
		t.Error("the watch moved")
	}
	o.stdin(held[0], "b\n", true)
	o.settle()
	let()
	if p := o.awaitEnd(held[0]); string(p.out[process.Stdout]) != "got b\n" || describe(p.exit) != "exited 0" {
		t.Errorf("it says %q, %s", p.out[process.Stdout], describe(p.exit))
	}
	if o.taken[1] {
		t.Error("its start was taken where nobody asked for it")
	}
}

// What the shim has of its user's processes for itself, nobody else can take.
func TestTheLimitOfProcessesCannotBeRaised(t *testing.T) {
	prlimit, err := exec.LookPath("prlimit")
	if err != nil {
		t.Skip(err)
	}
	socket, cmd := startShimAs(t, func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args = prlimit, append([]string{"prlimit", "--nproc=5000:5032"}, cmd.Args...)
	})
	h := newHost(t, socket)
	h.connect()
	limits := h.awaitEnd(h.start(sh("cat /proc/self/limits"))).out[process.Stdout]
	own, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "limits"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		whose string
		text  []byte
		want  []string
	}{{"a process's", limits, []string{"5000", "5000"}}, {"the shim's", own, []string{"5032", "5032"}}} {
		_, line, _ := strings.Cut(string(tt.text), "Max processes")
		if got := strings.Fields(line); len(got) < 2 || !slices.Equal(got[:2], tt.want) {
			t.Errorf("%s: %q, want %q", tt.whose, got, tt.want)
		}
	}
}

// Who may stop the shim's children before they are their programs stops nothing else.
func TestWhoStopsAllStopsNoShim(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root starts processes of others")
	}
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip(err)
	}
	socket, _ := startShimAs(t, func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	}, "-execute", "5s")
	h := newHost(t, socket)
	h.connect()
	stops := h.start(process.Spec{Cmd: "perl", User: "nobody", Args: []string{"-e", `$| = 1; print "ready"; kill STOP => -1 while 1`}})
	h.awaitOutput(stops, "ready")
	var tokens []string
	for range 50 {
		tokens = append(tokens, h.start(process.Spec{Cmd: "/bin/true", User: "nobody"}))
		if p := h.awaitEnd(h.start(sh("exit 3"))); describe(p.exit) != "exited 3" {
			t.Fatalf("root's: %s", describe(p.exit))
		}
	}
	refused := 0
	for _, token := range tokens {
		h.await("a start", func() bool { return len(h.procs[token].events) > 0 })
		if h.failed(token) != nil {
			refused++
		}
	}
	t.Logf("%d of %d were stopped before they were programs", refused, len(tokens))
	if r := h.awaitReply(h.signal(stops, int32(syscall.SIGKILL))); r.Error != "" {
		t.Errorf("it cannot be killed: %+v", r)
	}
	h.awaitEnd(stops)
	if p := h.awaitEnd(h.start(process.Spec{Cmd: "/bin/true", User: "nobody"})); describe(p.exit) != "exited 0" {
		t.Errorf("when nobody stops it: %s", describe(p.exit))
	}
}
