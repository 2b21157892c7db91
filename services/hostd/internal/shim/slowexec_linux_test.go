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

// leased returns a script that cannot be executed until release is called.
func leased(t *testing.T) (path string, release func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nread a; echo got $a\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, spawntest.Lease(t, path)
}

// failed returns why a process never ran, or nil if it did.
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

// TestSlowExecDelaysNothingElse: a process that is delayed before exec delays neither other
// processes nor a reconnecting hostd. Commands for it meanwhile wait, and run once and in
// order.
func TestSlowExecDelaysNothingElse(t *testing.T) {
	h := connected(t)
	other := h.start(sh("trap 'echo heard' TERM; echo ready; while :; do sleep 0.05; done"))
	h.awaitOutput(other, "ready")
	path, release := leased(t)
	slow := h.start(process.Spec{Cmd: path, Stdin: true})
	input := wire.AppendStdin(nil, &wire.Stdin{Rev: h.nextRev(), Token: slow, Command: "one", Data: []byte("a")})
	h.send(input)
	last := h.stdin(slow, " b\n", true)
	h.settle()
	if r := h.awaitReply(h.signal(other, int32(syscall.SIGTERM))); r.Error != "" {
		t.Errorf("a signal to another process: %+v", r)
	}
	h.awaitOutput(other, "heard")
	if p := h.awaitEnd(h.start(sh("echo hello"))); string(p.out[process.Stdout]) != "hello\n" {
		t.Errorf("a start of another process: %q", p.out[process.Stdout])
	}
	h.connect()
	h.send(input)
	h.settle()
	h.mu.Lock()
	if _, answered := h.replies[last]; answered || len(h.procs[slow].events) > 0 {
		t.Errorf("the exec was not delayed: %+v", h.procs[slow].events)
	}
	h.mu.Unlock()
	release()
	h.awaitReply(last)
	if p := h.awaitEnd(slow); string(p.out[process.Stdout]) != "got a b\n" || describe(p.exit) != "exited 0" {
		t.Errorf("output %q, %s", p.out[process.Stdout], describe(p.exit))
	}
}

// TestSlowStartsOfOneUserDelayNoOtherUser, however many they are.
func TestSlowStartsOfOneUserDelayNoOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root starts processes of others")
	}
	socket, _ := startShim(t, "-execute", "1h")
	h := newHost(t, socket)
	h.connect()
	path, release := leased(t)
	if err := os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755); err != nil {
		t.Fatal(err)
	}
	var slow []string
	for range 2 * shim.MaxStarts {
		slow = append(slow, h.start(process.Spec{Cmd: path, User: "nobody"}))
	}
	h.settle()
	h.awaitEnd(h.start(sh("exit 0")))
	h.mu.Lock()
	for _, token := range slow {
		if n := len(h.procs[token].events); n > 0 {
			t.Errorf("a start was not delayed: %d events", n)
		}
	}
	h.mu.Unlock()
	release()
	for _, token := range slow {
		if p := h.awaitEnd(token); describe(p.exit) != "exited 0" {
			t.Errorf("after the delay: %s, %+v", describe(p.exit), h.failed(token))
		}
	}
}

// TestStartHasATimeout: a delayed exec does not wait forever.
func TestStartHasATimeout(t *testing.T) {
	socket, _ := startShim(t, "-execute", "200ms")
	h := newHost(t, socket)
	h.connect()
	path, _ := leased(t)
	slow := h.start(process.Spec{Cmd: path, Stdin: true})
	input := h.stdin(slow, "a\n", true)
	h.awaitEnd(slow)
	f := h.failed(slow)
	if f == nil || kind.Kind(f.Kind) != kind.Unavailable || !strings.Contains(f.Message, "could not be executed within 200ms") {
		t.Errorf("it failed with %+v", f)
	}
	if r := h.awaitReply(input); r.Kind != kind.NotFound {
		t.Errorf("input to it: %+v", r)
	}
	h.awaitEnd(h.start(sh("exit 0")))
}

// TestCommandsThatWaitForAStartAreBounded: the queue has a limit, with a reserve for
// signals.
func TestCommandsThatWaitForAStartAreBounded(t *testing.T) {
	h := connected(t)
	path, release := leased(t)
	slow := h.start(process.Spec{Cmd: path, Stdin: true})
	var last uint64
	for range 5 {
		last = h.stdin(slow, strings.Repeat("x", 1<<20), false)
	}
	if r := h.awaitReply(last); r.Kind != kind.Exhausted {
		t.Errorf("got %+v, want Exhausted", r)
	}
	for _, size := range []int{1 << 18, 1 << 16, 1 << 14, 1 << 12, 1 << 10, 1} { // until the queue is full
		for refused := false; !refused; {
			rev := h.stdin(slow, strings.Repeat("x", size), false)
			h.settle()
			h.mu.Lock()
			_, refused = h.replies[rev]
			h.mu.Unlock()
		}
	}
	end := h.signal(slow, int32(syscall.SIGKILL))
	h.settle()
	release()
	if r := h.awaitReply(end); r.Error != "" {
		t.Errorf("a signal with a full queue: %+v", r)
	}
	h.awaitEnd(slow)
}

// TestQueuedCommandsAreNotCountedTwice: queued commands that hostd repeats on a new
// connection count once.
func TestQueuedCommandsAreNotCountedTwice(t *testing.T) {
	h := connected(t)
	path, release := leased(t)
	slow := h.start(process.Spec{Cmd: path, Stdin: true})
	var frames [][]byte
	var revs []uint64
	for range 3 {
		f := wire.Stdin{Rev: h.nextRev(), Token: slow, Command: "c", Data: bytes.Repeat([]byte("x"), 1<<20)}
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
	h.signal(slow, int32(syscall.SIGKILL))
	release()
	h.awaitEnd(slow)
}

// TestDelayedStartCanBeEnded by the end of the sandbox, a reboot, or Forget.
func TestDelayedStartCanBeEnded(t *testing.T) {
	for _, how := range []string{"End", "Reboot", "Forget"} {
		t.Run(how, func(t *testing.T) {
			h := connected(t)
			path, _ := leased(t)
			slow := h.start(process.Spec{Cmd: path, Stdin: true})
			h.settle()
			switch how {
			case "Reboot":
				h.send(wire.AppendReboot(nil))
				h.settle()
				h.awaitEnd(slow)
			case "Forget":
				h.mu.Lock()
				delete(h.procs, slow)
				h.mu.Unlock()
				h.send(wire.AppendForget(nil, slow))
			}
			h.send(wire.AppendEnd(nil))
			h.await("the end of the sandbox", func() bool { return h.ended })
			if how == "End" {
				h.awaitEnd(slow)
			}
		})
	}
}

// TestDelayedStartMoves: after a move to another sandbox, a delayed process starts without
// the commands of the first one. A watch that waits behind it does not move.
func TestDelayedStartMoves(t *testing.T) {
	h := connected(t)
	path, release := leased(t)
	var slow []string
	for range 2 * shim.MaxStarts {
		slow = append(slow, h.start(process.Spec{Cmd: path, Stdin: true}))
	}
	h.stdin(slow[0], "a\n", false)
	h.settle()
	watch := h.start(process.Spec{Cmd: file.WatchCmd, Args: []string{"/", "0s"}})
	h.settle()
	o := h.attachAsOther(false, slow...)
	if o.moved[watch] != nil {
		t.Error("the watch moved")
	}
	o.stdin(slow[0], "b\n", true)
	o.settle()
	release()
	if p := o.awaitEnd(slow[0]); string(p.out[process.Stdout]) != "got b\n" || describe(p.exit) != "exited 0" {
		t.Errorf("output %q, %s", p.out[process.Stdout], describe(p.exit))
	}
	if o.taken[1] {
		t.Error("its start was acknowledged to the other sandbox")
	}
}

// TestProcessLimitCannotBeRaised: the shim's reserve of processes is not available to
// others.
func TestProcessLimitCannotBeRaised(t *testing.T) {
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
		name string
		text []byte
		want []string
	}{{"a process's", limits, []string{"5000", "5000"}}, {"the shim's", own, []string{"5032", "5032"}}} {
		_, line, _ := strings.Cut(string(tt.text), "Max processes")
		if got := strings.Fields(line); len(got) < 2 || !slices.Equal(got[:2], tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestStoppingChildrenBeforeExecDoesNotStopTheShim: a process that may send SIGSTOP to the
// shim's children before exec stops nothing else.
func TestStoppingChildrenBeforeExecDoesNotStopTheShim(t *testing.T) {
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
			t.Fatalf("a process of root: %s", describe(p.exit))
		}
	}
	refused := 0
	for _, token := range tokens {
		h.await("a start", func() bool { return len(h.procs[token].events) > 0 })
		if h.failed(token) != nil {
			refused++
		}
	}
	t.Logf("%d of %d were stopped before exec", refused, len(tokens))
	if r := h.awaitReply(h.signal(stops, int32(syscall.SIGKILL))); r.Error != "" {
		t.Errorf("the stopping process cannot be killed: %+v", r)
	}
	h.awaitEnd(stops)
	if p := h.awaitEnd(h.start(process.Spec{Cmd: "/bin/true", User: "nobody"})); describe(p.exit) != "exited 0" {
		t.Errorf("without the stopping process: %s", describe(p.exit))
	}
}
