package shim_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

func TestOutputArrivesWhole(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	bin := filepath.Join(t.TempDir(), "all")
	if err := os.WriteFile(bin, bytes.Repeat(all, 1000), 0o644); err != nil {
		t.Fatal(err)
	}
	ones := filepath.Join(t.TempDir(), "ones.py")
	script := "import os\nfor i in range(1000000): os.write(1, b'x')\n"
	if err := os.WriteFile(ones, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name           string
		spec           process.Spec
		stdout, stderr string
		exit           string
	}{
		{"nothing", sh(""), "", "", "exited 0"},
		{"no newline at the end", sh("printf abc"), "abc", "", "exited 0"},
		{"both streams", sh("echo out; echo err >&2"), "out\n", "err\n", "exited 0"},
		{"all byte values", process.Spec{Cmd: "cat", Args: []string{bin}}, string(bytes.Repeat(all, 1000)), "", "exited 0"},
		{"a million one-byte writes", process.Spec{Cmd: "python3", Args: []string{ones}}, strings.Repeat("x", 1_000_000), "", "exited 0"},
		{"a line of 8 MiB", sh("head -c 8388608 /dev/zero | tr '\\0' a"), strings.Repeat("a", 8<<20), "", "exited 0"},
		{"code 1", sh("exit 1"), "", "", "exited 1"},
		{"code 255", sh("exit 255"), "", "", "exited 255"},
		{"code 128+n", sh("exit 137"), "", "", "exited 137"},
		{"SIGSEGV", sh("kill -SEGV $$"), "", "", "signaled by 11"},
		{"SIGXCPU", sh("kill -XCPU $$"), "", "", "signaled by 24"},
		{"the tail before SIGKILL", sh("seq 1 3000; kill -9 $$"), seq(3000), "", "signaled by 9"},
		{"stdout closed while it runs", sh("exec 1>&-; echo late >&2"), "", "late\n", "exited 0"},
		{"interleaved", sh("for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done"), "o1\no2\no3\no4\no5\n", "e1\ne2\ne3\ne4\ne5\n", "exited 0"},
		{"not executable", process.Spec{Cmd: "/etc/passwd"}, "", "*ermission denied", "exited 126"},
		{"missing", process.Spec{Cmd: "no-such-program-anywhere"}, "", "*not found", "exited 127"},
		{"stdin closed from the start", sh("cat; echo done"), "done\n", "", "exited 0"},
	}
	h := connected(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := h.awaitEnd(h.start(tt.spec))
			if got := string(p.out[process.Stdout]); got != tt.stdout {
				t.Errorf("stdout: %d bytes %.80q, want %d", len(got), got, len(tt.stdout))
			}
			got := string(p.out[process.Stderr])
			if part, ok := strings.CutPrefix(tt.stderr, "*"); ok && !strings.Contains(got, part) || !ok && got != tt.stderr {
				t.Errorf("stderr: %.80q, want %.80q", got, tt.stderr)
			}
			if got := describe(p.end); got != tt.exit {
				t.Errorf("exit: %s, want %s", got, tt.exit)
			}
			if p.started == 0 || p.exit == nil {
				t.Errorf("started %d, exited %v", p.started, p.exit)
			}
		})
	}
}

func seq(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

func TestStartErrors(t *testing.T) {
	large := strings.Repeat("x", 140_000)
	tests := []struct {
		name, want string
		spec       process.Spec
	}{
		{"missing cwd", "cwd '/nope' does not exist", process.Spec{Cmd: "true", Cwd: "/nope"}},
		{"cwd is a file", "cwd '/etc/passwd' is not a directory", process.Spec{Cmd: "true", Cwd: "/etc/passwd"}},
		{"unknown user", "invalid username: 'nobody-at-all'", process.Spec{Cmd: "true", User: "nobody-at-all"}},
		{"argument too long", `argument 2 of "echo" is 140000 bytes long, the limit is 131071`,
			process.Spec{Cmd: "echo", Args: []string{"x", large}}},
		{"command too long", "the command is 140000 bytes long, the limit is 131071", process.Spec{Cmd: large}},
		{"variable too long", `environment variable "SECRET" is 140007 bytes long with its name, the limit is 131071`,
			process.Spec{Cmd: "true", Env: map[string]string{"SECRET": large}}},
	}
	h := connected(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := h.awaitEnd(h.start(tt.spec))
			f, ok := p.events[0].Body.(process.Failed)
			if !ok || f.Message != tt.want || p.end.Cause != process.CauseNotStarted || len(p.events) != 2 {
				t.Errorf("got %+v, want %q", p.events, tt.want)
			}
		})
	}
}

func TestEnvironmentIsTheSandboxs(t *testing.T) {
	socket, _ := startShim(t)
	h := newHost(t, socket)
	h.env = map[string]string{"E2B_SANDBOX": "true", "BOTH": "sandbox"}
	h.connect()
	p := h.awaitEnd(h.start(process.Spec{Cmd: "env", Env: map[string]string{"BOTH": "request", "OWN": "1"}}))
	env := string(p.out[process.Stdout])
	for _, want := range []string{"PATH=/usr/local/sbin:", "HOME=/", "USER=", "LOGNAME=", "E2B_SANDBOX=true\n", "BOTH=request\n", "OWN=1\n"} {
		if !strings.Contains(env, want) {
			t.Errorf("no %q in\n%s", want, env)
		}
	}
	if strings.Contains(env, "SECRET") || strings.Contains(env, "MILLRACE") {
		t.Errorf("the host's environment leaks:\n%s", env)
	}
}

func TestChildrenGetNoDescriptors(t *testing.T) {
	h := connected(t)
	h.start(process.Spec{Cmd: "sleep", Args: []string{"60"}, Stdin: true})
	h.start(process.Spec{Cmd: "sleep", Args: []string{"60"}, PTY: &process.Size{Cols: 80, Rows: 24}})
	p := h.awaitEnd(h.start(sh("exec ls /proc/self/fd")))
	if got := string(p.out[process.Stdout]); got != "0\n1\n2\n3\n" { // 3 is ls's own
		t.Errorf("descriptors %q", got)
	}
}

// TestGrandchildHoldsThePipe: Exited does not wait for a grandchild with the pipe open; the
// output of that is recorded; Finished follows after silence.
func TestGrandchildHoldsThePipe(t *testing.T) {
	socket, _ := startShim(t)
	h := newHost(t, socket)
	h.limits = wire.Limits{Grace: 3 * time.Second, GraceMax: 20 * time.Second}
	h.connect()
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	token := h.start(sh("(read x < " + gate + "; echo late; sleep 60) & echo early"))
	p := h.procs[token]
	h.await("exited", func() bool { return p.exit != nil })
	begun := time.Now()
	if err := os.WriteFile(gate, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.awaitEnd(token)
	if got := string(p.out[process.Stdout]); got != "early\nlate\n" {
		t.Errorf("stdout %q", got)
	}
	if d := time.Since(begun); d < h.limits.Grace {
		t.Errorf("finished %v after the last output, want no sooner than %v", d, h.limits.Grace)
	}
	types := ""
	for _, e := range p.events {
		types += e.Type() + " "
	}
	if types != "start stdout exited stdout end " {
		t.Errorf("events %s", types)
	}
}

// TestGrandchildThatNeverStops: a grandchild that keeps printing neither keeps the record
// open forever nor dies when it ends.
func TestGrandchildThatNeverStops(t *testing.T) {
	socket, _ := startShim(t)
	h := newHost(t, socket)
	h.limits = wire.Limits{Grace: 200 * time.Millisecond, GraceMax: 300 * time.Millisecond}
	h.connect()
	mark := filepath.Join(t.TempDir(), "alive")
	h.awaitEnd(h.start(sh("(i=0; while [ $i -lt 16 ]; do echo x; sleep 0.05; i=$((i+1)); done; touch " + mark + ") & exit 3")))
	wait := time.Now().Add(patience)
	for _, err := os.Stat(mark); err != nil; _, err = os.Stat(mark) {
		if time.Now().After(wait) {
			t.Fatal("the grandchild died of the closed pipe")
		}
		h.awaitEnd(h.start(sh("sleep 0.1")))
	}
}

// TestUntilEOF: the record of a start with UntilEOF stays open while a grandchild is silent, until that
// closes the pipe. One with a terminal ends after a silence.
func TestUntilEOF(t *testing.T) {
	socket, _ := startShim(t)
	h := newHost(t, socket)
	h.limits = wire.Limits{Grace: 20 * time.Millisecond, GraceMax: 30 * time.Millisecond}
	h.connect()
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	spec := sh("(read x < " + gate + "; echo late) & echo early")
	spec.UntilEOF = true
	token := h.start(spec)
	p := h.procs[token]
	h.await("exited", func() bool { return p.exit != nil })
	h.awaitEnd(h.start(sh("sleep 60 & exit 3"))) // a record without it ends meanwhile
	h.awaitEnd(h.start(process.Spec{Cmd: "sh", Args: []string{"-c", "trap '' HUP; sleep 60 & exit 4"}, PTY: &process.Size{}, UntilEOF: true}))
	if err := os.WriteFile(gate, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.awaitEnd(token)
	if got := string(p.out[process.Stdout]); got != "early\nlate\n" {
		t.Errorf("stdout %q", got)
	}
}

// TestGrandchildWritesToTheTerminal: a terminal is not hung up by the exit of the process that it was
// opened for, so that a grandchild's output is recorded.
func TestGrandchildWritesToTheTerminal(t *testing.T) {
	socket, _ := startShim(t)
	h := newHost(t, socket)
	h.limits = wire.Limits{Grace: time.Hour, GraceMax: time.Hour}
	h.connect()
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	script := "trap '' HUP; (read x < " + gate + "; echo late) & echo early"
	token := h.start(process.Spec{Cmd: "sh", Args: []string{"-c", script}, PTY: &process.Size{Cols: 80, Rows: 24}, UntilEOF: true})
	p := h.procs[token]
	h.await("exited", func() bool { return p.exit != nil })
	if err := os.WriteFile(gate, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.awaitEnd(token)
	if got := string(p.out[process.PTY]); got != "early\r\nlate\r\n" {
		t.Errorf("terminal %q", got)
	}
}

// TestKillEndsUntilEOF: a process that left the group survives SIGKILL, but no longer keeps the record of a
// start with UntilEOF open, whether the signal comes after or before the exit.
func TestKillEndsUntilEOF(t *testing.T) {
	socket, _ := startShim(t)
	h := newHost(t, socket)
	h.limits = wire.Limits{Grace: 20 * time.Millisecond, GraceMax: 30 * time.Millisecond}
	h.connect()
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	open, err := os.OpenFile(gate, os.O_RDWR, 0) // each daemon runs until this is closed
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	daemon := "setsid sh -c 'echo ready; read x < " + gate + "' & "
	for _, tt := range []struct {
		then   string
		ready  func(p *rec) bool
		reply  kind.Kind
		exited string
	}{
		{"exit 4", func(p *rec) bool { return p.exit != nil }, kind.NotFound, "exited 4"},
		{"exec sleep 60", func(*rec) bool { return true }, 0, "killed by 9"},
	} {
		spec := sh(daemon + tt.then)
		spec.UntilEOF = true
		token := h.start(spec)
		p := h.procs[token]
		h.await("the daemon", func() bool { return string(p.out[process.Stdout]) == "ready\n" && tt.ready(p) })
		if r := h.awaitReply(h.signal(token, int32(syscall.SIGKILL))); r.Kind != tt.reply {
			t.Errorf("%s: SIGKILL: %+v", tt.then, r)
		}
		if got := describe(h.awaitEnd(token).end); got != tt.exited {
			t.Errorf("%s: %s", tt.then, got)
		}
	}
}

func TestDaemonizedChild(t *testing.T) {
	h := connected(t)
	p := h.awaitEnd(h.start(sh("setsid sh -c '(sleep 60 >/dev/null 2>&1 </dev/null) &' ; echo ok")))
	if string(p.out[process.Stdout]) != "ok\n" || describe(p.end) != "exited 0" {
		t.Errorf("%q %s", p.out[process.Stdout], describe(p.end))
	}
}

func TestManyProcessesAtOnce(t *testing.T) {
	h := connected(t)
	const n, size = 10, 5 << 20
	var tokens []string
	for i := range n {
		tokens = append(tokens, h.start(sh(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' '\\%03o'", size, 'a'+i))))
	}
	for i, token := range tokens {
		p := h.awaitEnd(token)
		if sha256.Sum256(p.out[process.Stdout]) != sha256.Sum256(bytes.Repeat([]byte{byte('a' + i)}, size)) {
			t.Errorf("process %d: %d bytes", i, len(p.out[process.Stdout]))
		}
	}
}

func TestQuota(t *testing.T) {
	socket, _ := startShim(t)
	h := newHost(t, socket)
	h.limits = wire.Limits{Quota: 1000}
	h.connect()
	p := h.awaitEnd(h.start(sh("head -c 1000000 /dev/zero; echo end >&2; exit 4")))
	if n := len(p.out[process.Stdout]) + len(p.out[process.Stderr]); n != 1000 {
		t.Errorf("%d bytes recorded", n)
	}
	dropped := make(map[process.Stream]uint64)
	for _, e := range p.events {
		if b, ok := e.Body.(process.Truncated); ok {
			dropped[b.Stream] = b.Dropped
		}
	}
	if sum := dropped[process.Stdout] + dropped[process.Stderr]; sum != 1_000_004-1000 || describe(p.end) != "exited 4" {
		t.Errorf("dropped %v, %s", dropped, describe(p.end))
	}
}

// TestFullSpoolBlocksAndLosesNothing: a process whose output is not acknowledged blocks.
func TestFullSpoolBlocksAndLosesNothing(t *testing.T) {
	socket, cmd := startShim(t)
	h := newHost(t, socket)
	h.holdAcks = true
	h.connect()
	const size = 64 << 20
	token := h.start(sh(fmt.Sprintf("head -c %d /dev/zero", size)))
	p := h.procs[token]
	h.await("a full window", func() bool { return len(p.out[process.Stdout]) >= wire.WindowProcess-(1<<16) })
	for range 20 { // it stays full
		h.awaitReply(h.signal(token, 18))
	}
	if n := len(p.out[process.Stdout]); n > wire.WindowProcess+wire.MaxData {
		t.Errorf("%d bytes sent and not acked", n)
	}
	if kb := residentKB(t, cmd.Process.Pid); kb > 64<<10 {
		t.Errorf("the shim uses %d KiB", kb)
	}
	h.mu.Lock()
	h.holdAcks = false
	h.mu.Unlock()
	h.connect()
	h.mu.Lock()
	last := p.last()
	h.mu.Unlock()
	h.send(wire.AppendMark(nil, wire.TypeAck, wire.Mark{Token: token, Seq: last}))
	h.awaitEnd(token)
	if n := len(p.out[process.Stdout]); n != size || describe(p.end) != "exited 0" {
		t.Errorf("%d bytes, %s", n, describe(p.end))
	}
}

func residentKB(t *testing.T, pid int) (kb int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb
}
