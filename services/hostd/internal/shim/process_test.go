package shim_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

func (h *host) awaitOutput(token, want string) {
	h.t.Helper()
	p := h.procs[token]
	h.await(fmt.Sprintf("%q", want), func() bool {
		return bytes.Contains(p.out[process.Stdout], []byte(want)) || bytes.Contains(p.out[process.PTY], []byte(want))
	})
}

// TestStartIsTakenBeforeItsEvents: otherwise hostd could store the end of a process and
// then repeat its start on the next connection, when the shim has forgotten the process.
func TestStartIsTakenBeforeItsEvents(t *testing.T) {
	socket, _ := startShim(t)
	h := newHost(t, socket)
	untaken := make(map[string]bool)
	h.onEach = func(h *host) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for token, p := range h.procs {
			untaken[token] = untaken[token] || len(p.events) > 0 && !h.taken[p.rev]
		}
	}
	h.connect()
	for range 100 {
		h.awaitEnd(h.start(sh("exit 0")))
	}
	h.await("all starts", func() bool { return len(h.taken) == len(h.procs) })
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, was := range untaken {
		if was {
			n++
		}
	}
	if n > 0 {
		t.Errorf("%d of %d processes had events before", n, len(h.procs))
	}
}

func TestStdin(t *testing.T) {
	h := connected(t)
	token := h.start(process.Spec{Cmd: "cat", Stdin: true})
	if r := h.awaitReply(h.stdin(token, "one\x00\xff\n", false)); r.Error != "" || r.Offset != 6 {
		t.Errorf("reply %+v", r)
	}
	h.awaitOutput(token, "one\x00\xff\n")
	if r := h.awaitReply(h.stdin(token, "two", true)); r.Error != "" || r.Offset != 9 {
		t.Errorf("reply %+v", r)
	}
	p := h.awaitEnd(token)
	if got := string(p.out[process.Stdout]); got != "one\x00\xff\ntwo" {
		t.Errorf("stdout %q", got)
	}
	if r := h.awaitReply(h.stdin(token, "three", true)); r.Kind != kind.NotFound {
		t.Errorf("stdin after the end: %+v", r)
	}
}

// TestStdinAfterTheExit: input after the exit finds no process, even if its pipes are still
// open. Clients would treat any other error as their own.
func TestStdinAfterTheExit(t *testing.T) {
	socket, _ := startShim(t)
	h := newHost(t, socket)
	h.limits = wire.Limits{Grace: time.Minute, GraceMax: time.Minute}
	h.connect()
	token := h.start(process.Spec{Cmd: "sh", Args: []string{"-c", "sleep 60 & exit 7"}, Stdin: true})
	p := h.procs[token]
	h.await("an exit", func() bool { return p.exit != nil })
	for _, eof := range []bool{true, false} {
		if r := h.awaitReply(h.stdin(token, "more", eof)); r.Kind != kind.NotFound {
			t.Errorf("got %v %q", r.Kind, r.Error)
		}
	}
	h.awaitReply(h.signal(token, int32(syscall.SIGKILL)))
	h.awaitEnd(token)
}

func TestStdinRefusals(t *testing.T) {
	h := connected(t)
	closed := h.start(process.Spec{Cmd: "sleep", Args: []string{"60"}})
	twice := h.start(process.Spec{Cmd: "sh", Args: []string{"-c", "cat >/dev/null; sleep 60"}, Stdin: true})
	full := h.start(process.Spec{Cmd: "sleep", Args: []string{"60"}, Stdin: true})
	tty := h.start(process.Spec{Cmd: "sleep", Args: []string{"60"}, PTY: &process.Size{}})
	h.awaitReply(h.stdin(twice, "", true))
	tests := []struct {
		name, token, data string
		eof               bool
		want              kind.Kind
	}{
		{"to a process without stdin", closed, "x", false, kind.Precondition},
		{"closed twice", twice, "", true, kind.Precondition},
		{"more than the queue holds", full, strings.Repeat("x", wire.MaxFrame-1000), false, 0},
		{"and more", full, strings.Repeat("x", wire.MaxFrame-1000), false, 0},
		{"and too much", full, strings.Repeat("x", wire.MaxFrame-1000), false, kind.Exhausted},
		{"the end of a terminal", tty, "", true, kind.Precondition},
		{"to an unknown process", "01arz3ndektsv4rrffq69g5fav", "x", false, kind.NotFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rev := h.stdin(tt.token, tt.data, tt.eof)
			if tt.want == 0 {
				h.await("taken", func() bool { return h.taken[rev] })
				return
			}
			if r := h.awaitReply(rev); r.Error == "" || r.Kind != tt.want {
				t.Errorf("got %v %q, want %v", r.Kind, r.Error, tt.want)
			}
		})
	}
}

// TestStdinToASlowReader: a reader slower than its input gets all of it; a sender that
// waits for each reply is slowed down and never refused.
func TestStdinToASlowReader(t *testing.T) {
	h := connected(t)
	token := h.start(process.Spec{Cmd: "sh", Args: []string{"-c", "sleep 0.2; sha256sum"}, Stdin: true})
	sum := sha256.New()
	chunk := make([]byte, 256<<10)
	const chunks = 256 // 64 MiB
	for i := range chunks {
		for j := range chunk {
			chunk[j] = byte(i + j*7)
		}
		sum.Write(chunk)
		if r := h.awaitReply(h.stdin(token, string(chunk), i == chunks-1)); r.Error != "" {
			t.Fatalf("chunk %d: %+v", i, r)
		}
	}
	p := h.awaitEnd(token)
	if got := string(p.out[process.Stdout]); !strings.HasPrefix(got, fmt.Sprintf("%x", sum.Sum(nil))) {
		t.Errorf("sum %q", got)
	}
}

// TestRepeatedInputIsWrittenOnce: input that a client repeats, as another command with the
// same key, is written once, and every command gets the first one's reply.
func TestRepeatedInputIsWrittenOnce(t *testing.T) {
	h := connected(t)
	send := func(token, key, data string, eof bool) uint64 {
		rev := h.nextRev()
		h.send(wire.AppendStdin(nil, &wire.Stdin{Rev: rev, Token: token, Command: process.InputAttempt(key, fmt.Sprint(rev)), Data: []byte(data), EOF: eof}))
		return rev
	}
	same := func(what string, n int, repeat func() uint64) {
		t.Helper()
		var revs []uint64
		for range n {
			revs = append(revs, repeat())
		}
		first := h.awaitReply(revs[0])
		for _, rev := range revs[1:] {
			if r := h.awaitReply(rev); r.Error != first.Error || r.Kind != first.Kind || r.Offset != first.Offset {
				t.Errorf("%s: first %+v, then %+v", what, first, r)
			}
		}
	}
	// Larger than a pipe, so that the first write is still in progress.
	big := strings.Repeat("x", 1<<20)
	slow := h.start(process.Spec{Cmd: "sh", Args: []string{"-c", "sleep 0.2; wc -c; read x <&- || sleep 0.1"}, Stdin: true})
	same("big", 3, func() uint64 { return send(slow, "a", big, false) })
	same("small", 3, func() uint64 { return send(slow, "b", "y", false) })
	if r := h.awaitReply(send(slow, "b", "z", false)); r.Kind != kind.Conflict {
		t.Errorf("other input with the key: %+v", r)
	}
	same("EOF", 2, func() uint64 { return send(slow, "c", "", true) })
	same("closed", 2, func() uint64 { return send(slow, "d", "late", false) })
	if p := h.awaitEnd(slow); strings.TrimSpace(string(p.out[process.Stdout])) != fmt.Sprint(len(big)+1) {
		t.Errorf("stdout %q", p.out[process.Stdout])
	}
}

// TestCommandsAreTakenOnce: a command that hostd repeats is applied once, and gets its
// reply again.
func TestCommandsAreTakenOnce(t *testing.T) {
	h := connected(t)
	token := h.start(process.Spec{Cmd: "cat", Stdin: true})
	rev := h.nextRev()
	f := wire.AppendStdin(nil, &wire.Stdin{Rev: rev, Token: token, Command: "c", Data: []byte("once\n")})
	h.send(f)
	first := h.awaitReply(rev)
	h.connect()
	h.mu.Lock()
	delete(h.replies, rev)
	h.mu.Unlock()
	h.send(f)
	if again := h.awaitReply(rev); again.Offset != first.Offset || again.Error != "" {
		t.Errorf("first %+v, then %+v", first, again)
	}
	h.awaitReply(h.stdin(token, "", true))
	if p := h.awaitEnd(token); string(p.out[process.Stdout]) != "once\n" {
		t.Errorf("stdout %q", p.out[process.Stdout])
	}
}

func TestStartIsTakenOnce(t *testing.T) {
	h := connected(t)
	file := filepath.Join(t.TempDir(), "forks")
	spec := sh("echo x >> " + file + "; echo ready; sleep 60")
	token := h.start(spec)
	h.awaitOutput(token, "ready")
	f := wire.AppendStart(nil, &wire.Start{Rev: h.nextRev(), Token: token, Spec: process.AppendSpec(nil, &spec)})
	h.send(f)
	h.connect()
	h.send(f)
	h.awaitReply(h.signal(token, 9))
	h.awaitEnd(token)
	if b, err := os.ReadFile(file); err != nil || string(b) != "x\n" {
		t.Errorf("%q %v", b, err)
	}
}

func TestSignals(t *testing.T) {
	tests := []struct {
		name, script string
		signal       int32
		exit         string
	}{
		{"SIGTERM ends", "echo ready; sleep 60", 15, "killed by 15"},
		{"SIGTERM can be caught", "trap 'echo caught; exit 7' TERM; echo ready; sleep 60 >/dev/null 2>&1 & wait", 15, "exited 7"},
		{"SIGKILL cannot", "trap '' TERM; echo ready; sleep 60; sleep 60", 9, "killed by 9"},
		{"SIGINT ends", "echo ready; exec sleep 60", 2, "killed by 2"},
	}
	h := connected(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			token := h.start(sh(tt.script))
			h.awaitOutput(token, "ready")
			if r := h.awaitReply(h.signal(token, tt.signal)); r.Error != "" || r.After == 0 {
				t.Errorf("reply %+v", r)
			}
			if p := h.awaitEnd(token); describe(p.end) != tt.exit {
				t.Errorf("got %s, want %s", describe(p.end), tt.exit)
			}
		})
	}
}

func TestKillReachesTheGroup(t *testing.T) {
	h := connected(t)
	token := h.start(sh("sleep 61.5 & sh -c 'sleep 61.5 & wait' & echo ready; wait"))
	h.awaitOutput(token, "ready")
	h.awaitReply(h.signal(token, 9))
	h.awaitEnd(token)
	for _, pid := range pidsOf(t, "61.5") {
		t.Errorf("pid %d still runs", pid)
	}
}

// pidsOf returns the processes with that argument, except zombies.
func pidsOf(t *testing.T, arg string) (pids []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range dirs {
		b, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(b, []byte("\x00"+arg+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestTimeout(t *testing.T) {
	h := connected(t)
	spec := sh("echo before; sleep 60")
	spec.Timeout = 2 * time.Second
	begun := time.Now()
	p := h.awaitEnd(h.start(spec))
	if d := time.Since(begun); describe(p.end) != "timeout by 9" || string(p.out[process.Stdout]) != "before\n" || d < spec.Timeout {
		t.Errorf("%s, %q after %v", describe(p.end), p.out[process.Stdout], d)
	}
}

func TestTerminal(t *testing.T) {
	h := connected(t)
	token := h.start(process.Spec{Cmd: "bash", Args: []string{"--norc", "-i"}, PTY: &process.Size{Cols: 80, Rows: 24},
		Env: map[string]string{"PS1": "$ ", "TERM": "xterm"}})
	h.awaitOutput(token, "$ ")
	h.stdin(token, "stty size; tty\n", false)
	h.awaitOutput(token, "24 80\r\n/dev/pts/")
	for i := range uint32(50) { // many sizes, and then none
		h.send(wire.AppendResize(nil, &wire.Resize{Rev: h.nextRev(), Token: token, Cols: 4000 + i, Rows: 2000 + i}))
	}
	h.send(wire.AppendResize(nil, &wire.Resize{Rev: h.nextRev(), Token: token}))
	rev := h.nextRev()
	h.send(wire.AppendResize(nil, &wire.Resize{Rev: rev, Token: token, Cols: 132, Rows: 43}))
	if r := h.awaitReply(rev); r.Error != "" {
		t.Errorf("resize: %+v", r)
	}
	h.stdin(token, "stty size\n", false)
	h.awaitOutput(token, "43 132\r\n")
	h.stdin(token, "sh -c 'echo re$((1+1))dy; exec sleep 62.5'\n", false)
	h.awaitOutput(token, "re2dy\r\n")
	h.stdin(token, "\x03", false) // interrupts the sleep, not the shell
	h.stdin(token, "echo st$((1+1))ll\n", false)
	h.awaitOutput(token, "st2ll\r\n")
	h.stdin(token, "sh -c 'echo ca$((1+1)); cat'\n", false)
	h.awaitOutput(token, "ca2\r\n")
	h.stdin(token, "\x04", false) // ends cat
	h.stdin(token, "exit 5\n", false)
	if p := h.awaitEnd(token); describe(p.end) != "exited 5" {
		t.Errorf("exit %s", describe(p.end))
	}
}

func TestTerminalKeepsTheTail(t *testing.T) {
	h := connected(t)
	want := strings.ReplaceAll(seq(3000), "\n", "\r\n")
	for _, script := range []string{"seq 1 3000", "seq 1 3000; kill -9 $$", "seq 1 3000; sleep 60 &"} {
		spec := sh(script)
		spec.PTY = &process.Size{Cols: 80, Rows: 24}
		for range 50 {
			if p := h.awaitEnd(h.start(spec)); string(p.out[process.PTY]) != want {
				t.Fatalf("%s: %d bytes, want %d", script, len(p.out[process.PTY]), len(want))
			}
		}
	}
}

func TestResizeWithoutTerminal(t *testing.T) {
	h := connected(t)
	token := h.start(process.Spec{Cmd: "sleep", Args: []string{"60"}})
	rev := h.nextRev()
	h.send(wire.AppendResize(nil, &wire.Resize{Rev: rev, Token: token, Cols: 1, Rows: 1}))
	if r := h.awaitReply(rev); r.Error != "" {
		t.Errorf("reply %+v", r)
	}
}

func TestUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	h := connected(t)
	spec := sh("id -un; id -gn; echo $HOME $USER $LOGNAME; pwd; id -G")
	spec.User = "nobody"
	p := h.awaitEnd(h.start(spec))
	want, err := exec.Command("sh", "-c", "id -un nobody; id -gn nobody").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := string(p.out[process.Stdout]); !strings.HasPrefix(got, string(want)+"/nonexistent nobody nobody\n/\n") {
		t.Errorf("got %q", got)
	}
}

// TestProcessesThatEndAtOnce: many end before the shim has their pids; their exits are
// recorded nevertheless.
func TestProcessesThatEndAtOnce(t *testing.T) {
	h := connected(t)
	for range 20 {
		var tokens []string
		for range 64 {
			tokens = append(tokens, h.start(process.Spec{Cmd: "/bin/false"}))
		}
		for _, token := range tokens {
			if p := h.awaitEnd(token); describe(p.exit) != describe(p.end) || p.end.Cause != process.CauseExited || p.end.Code == nil || *p.end.Code != 1 {
				t.Fatalf("exit %s, end %s", describe(p.exit), describe(p.end))
			}
		}
	}
}

func TestZombiesAreReaped(t *testing.T) {
	socket, cmd := startShim(t)
	h := newHost(t, socket)
	h.connect()
	for range 50 {
		h.awaitEnd(h.start(sh("(setsid true &) ; (setsid sh -c 'exit 3' &)")))
	}
	deadline := time.Now().Add(patience)
	for {
		b, err := exec.Command("ps", "-o", "stat=", "--ppid", strconv.Itoa(cmd.Process.Pid)).Output()
		if !bytes.Contains(b, []byte("Z")) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s %v", b, err)
		}
	}
}

func TestEndKillsEverything(t *testing.T) {
	socket, cmd := startShim(t)
	h := newHost(t, socket)
	h.connect()
	quiet := h.start(sh("sleep 63.5"))
	hidden := h.start(sh("setsid sh -c 'trap \"\" TERM HUP; sleep 63.5; sleep 63.5' & echo ready; sleep 63.5"))
	h.awaitOutput(hidden, "ready")
	h.send(wire.AppendEnd(nil))
	h.await("ended", func() bool { return h.ended })
	for _, token := range []string{quiet, hidden} {
		if p := h.awaitEnd(token); describe(p.end) != "sandbox_gone by 9" {
			t.Errorf("%s", describe(p.end))
		}
	}
	if left := pidsOf(t, "63.5"); len(left) > 0 {
		t.Errorf("pids %v still run", left)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("shim: %v", err)
	}
}

// TestEndWithoutProcesses: a shim with nothing to end, or to store, reports the end and exits.
func TestEndWithoutProcesses(t *testing.T) {
	for name, before := range map[string]func(*host){
		"none was started": func(*host) {},
		"its record is stored": func(h *host) {
			h.awaitEnd(h.start(sh("true")))
			h.settle() // the shim has handled the last ack
		},
	} {
		t.Run(name, func(t *testing.T) {
			socket, cmd := startShim(t)
			h := newHost(t, socket)
			h.connect()
			before(h)
			h.send(wire.AppendEnd(nil))
			h.await("ended", func() bool { return h.ended })
			exited := make(chan error, 1)
			go func() { exited <- cmd.Wait() }()
			select {
			case err := <-exited:
				if err != nil {
					t.Errorf("shim: %v", err)
				}
			case <-time.After(patience):
				t.Error("the shim does not exit")
				cmd.Process.Kill()
				<-exited
			}
		})
	}
}

// TestRebootKillsEverything: after a reboot only processes started later run.
func TestRebootKillsEverything(t *testing.T) {
	h := connected(t)
	quiet := h.start(sh("sleep 65.5"))
	hidden := h.start(sh("setsid sh -c 'trap \"\" TERM HUP; sleep 65.5; sleep 65.5' & echo ready; sleep 65.5"))
	h.awaitOutput(hidden, "ready")
	h.send(wire.AppendReboot(nil))
	after := h.start(sh("pgrep -f ' [6]5[.]5'; echo up"))
	for _, token := range []string{quiet, hidden} {
		if p := h.awaitEnd(token); describe(p.end) != "signaled by 9" {
			t.Errorf("%s", describe(p.end))
		}
	}
	if p := h.awaitEnd(after); string(p.out[process.Stdout]) != "up\n" || describe(p.end) != "exited 0" {
		t.Errorf("a process started after it: %q, %s", p.out[process.Stdout], describe(p.end))
	}
}

func TestShimsDeathKills(t *testing.T) {
	socket, cmd := startShim(t)
	h := newHost(t, socket)
	h.connect()
	token := h.start(process.Spec{Cmd: "sleep", Args: []string{"64.5"}})
	h.await("start", func() bool { return h.procs[token].started != 0 })
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	deadline := time.Now().Add(patience)
	for len(pidsOf(t, "64.5")) > 0 {
		if time.Now().After(deadline) {
			t.Fatal("the process outlives its shim")
		}
	}
}

// TestSignalsDoNotEndTheShim: processes of the sandbox may be permitted to signal their
// shim.
func TestSignalsDoNotEndTheShim(t *testing.T) {
	socket, cmd := startShim(t)
	h := newHost(t, socket)
	h.connect()
	h.awaitEnd(h.start(sh("exit 0"))) // the shim has started completely
	for sig := syscall.Signal(1); sig < 32; sig++ {
		switch sig {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGTERM:
			continue
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatalf("signal %v: %v", sig, err)
		}
	}
	if r := h.awaitEnd(h.start(sh("exit 7"))); describe(r.exit) != "exited 7" {
		t.Errorf("got %s", describe(r.exit))
	}
}

// TestFailureMessageIsShortText: the message may quote the spec. It is recorded as valid
// UTF-8 of bounded length.
func TestFailureMessageIsShortText(t *testing.T) {
	h := connected(t)
	long := strings.Repeat("é", 4<<10)
	tests := []struct {
		name, reason string
		spec         process.Spec
	}{
		{"a long directory", "cwd '/é", process.Spec{Cmd: "true", Cwd: "/" + long}},
		{"a long user", "invalid username: 'é", process.Spec{Cmd: "true", User: long}},
		{"a user that is not UTF-8", "invalid username: ''", process.Spec{Cmd: "true", User: "\xff"}},
		{"a watch on a terminal", "a watch has no terminal", process.Spec{Cmd: file.WatchCmd, Args: []string{"/", "0s"}, PTY: &process.Size{}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := h.awaitEnd(h.start(tt.spec))
			f, ok := p.events[0].Body.(process.Failed)
			if !ok || !strings.HasPrefix(f.Message, tt.reason) || len(f.Message) > wire.MaxText || !utf8.ValidString(f.Message) {
				t.Errorf("%d bytes: %.40q", len(f.Message), f.Message)
			}
		})
	}
}

// TestStandardFilesBelongToTheUser: a shell reopens /dev/stderr, which depends on the owner
// and the mode of the pipe.
func TestStandardFilesBelongToTheUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	h := connected(t)
	spec := sh("echo a > /dev/stderr; echo b | tee /proc/self/fd/1; cat /dev/stdin")
	spec.User, spec.Stdin = "nobody", true
	token := h.start(spec)
	h.stdin(token, "c\n", true)
	p := h.awaitEnd(token)
	if out, errs := string(p.out[process.Stdout]), string(p.out[process.Stderr]); out != "b\nb\nc\n" || errs != "a\n" {
		t.Errorf("pipes: stdout %q, stderr %q", out, errs)
	}
	spec = sh(`echo a > /dev/stderr; echo b > "$(tty)"; stat -c %U "$(tty)"`)
	spec.User, spec.PTY = "nobody", &process.Size{Cols: 80, Rows: 24}
	if got := string(h.awaitEnd(h.start(spec)).out[process.PTY]); got != "a\r\nb\r\nnobody\r\n" {
		t.Errorf("a terminal: %q", got)
	}
}
