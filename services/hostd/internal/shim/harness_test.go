package shim_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/shim"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// TestMain turns the test binary into a shim when the environment requests it: a shim waits for
// every child of its process, which therefore cannot be the test's.
func TestMain(m *testing.M) {
	if os.Getenv("MILLRACE_TEST_SHIM") != "" {
		os.Unsetenv("MILLRACE_TEST_SHIM")
		os.Exit(shim.Main(os.Args[1:], os.Stderr))
	}
	runTests(m)
}

const patience = time.Minute

// startShim runs a shim until the test ends and returns the path of its socket.
func startShim(t testing.TB, args ...string) (socket string, cmd *exec.Cmd) {
	t.Helper()
	return startShimAs(t, nil, args...)
}

// startShimAs is startShim with a change to the command.
func startShimAs(t testing.TB, change func(*exec.Cmd), args ...string) (socket string, cmd *exec.Cmd) {
	t.Helper()
	dir, err := os.MkdirTemp("", "shim")
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	f, err := ln.File()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = []string{"MILLRACE_TEST_SHIM=1", "SECRET=of-the-host"}
	cmd.ExtraFiles = []*os.File{f}
	cmd.Stderr = os.Stderr
	if change != nil {
		change(cmd)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	ln.Close()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		os.RemoveAll(dir)
	})
	return socket, cmd
}

// rec is a host's record of one process.
type rec struct {
	rev     uint64          // of its start
	events  []process.Event // from seq 2 on
	out     map[process.Stream][]byte
	acked   uint64
	started uint32
	exit    *process.Exit
	end     *process.Exit
}

func (r *rec) last() uint64 { return uint64(len(r.events)) + 1 }

// host is a hostd that keeps everything in memory. It checks every event: seq and offsets
// must be dense, regardless of broken connections.
type host struct {
	t        testing.TB
	socket   string
	dial     func() (net.Conn, error) // instead of the socket
	env      map[string]string
	limits   wire.Limits
	holdAcks bool     // do not ack
	file     *os.File // passed to the shim

	sandbox string // empty: "sbx"
	moved   map[string]*wire.Moved
	onEach  func(*host)

	mu           sync.Mutex
	changed      chan struct{}
	epoch        uint64
	rev          uint64
	conn         net.Conn
	procs        map[string]*rec
	replies      map[uint64]wire.Reply
	taken        map[uint64]bool
	ended        bool
	hello        chan wire.Hello
	pendingHello *wire.Hello // a Hello that read still has to report
	err          error
}

func newHost(t testing.TB, socket string) *host {
	return &host{t: t, socket: socket, changed: make(chan struct{}), procs: make(map[string]*rec),
		replies: make(map[uint64]wire.Reply), taken: make(map[uint64]bool), epoch: 1}
}

// connect dials and attaches, and closes the previous connection.
func (h *host) connect() {
	h.t.Helper()
	dial := h.dial
	if dial == nil {
		dial = func() (net.Conn, error) { return net.Dial("unix", h.socket) }
	}
	conn, err := dial()
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	h.mu.Lock()
	if h.conn != nil {
		h.conn.Close()
	}
	h.conn = conn
	hello := make(chan wire.Hello, 1)
	h.moved = make(map[string]*wire.Moved)
	h.hello = hello
	a := wire.Attach{Epoch: h.epoch, Sandbox: cmp.Or(h.sandbox, "sbx"), Env: h.env, Limits: h.limits}
	h.mu.Unlock()
	frame := wire.AppendAttach(nil, &a)
	if u, ok := conn.(*net.UnixConn); ok && h.file != nil {
		n, _, err := u.WriteMsgUnix(frame[:1], unix.UnixRights(int(h.file.Fd())), nil)
		if err != nil {
			h.t.Fatal(err)
		}
		frame = frame[n:]
	}
	h.send(frame)
	go h.read(conn)
	select {
	case <-hello:
	case <-time.After(patience):
		h.t.Fatal("no hello")
	}
}

func (h *host) send(frame []byte) {
	h.mu.Lock()
	conn := h.conn
	h.mu.Unlock()
	if conn != nil {
		conn.Write(frame)
	}
}

func (h *host) read(conn net.Conn) {
	r := wire.NewReader(conn)
	for {
		ty, payload, err := r.Next()
		if err != nil {
			return
		}
		h.mu.Lock()
		if conn != h.conn {
			h.mu.Unlock()
			return
		}
		out, err := h.take(ty, payload)
		if err != nil && h.err == nil {
			h.err = err
		}
		if len(out) > 0 { // before the test sees the event and sends more
			conn.Write(out)
		}
		if h.pendingHello != nil {
			h.hello <- *h.pendingHello
			h.pendingHello = nil
		}
		close(h.changed)
		h.changed = make(chan struct{})
		each := h.onEach
		h.mu.Unlock()
		if each != nil {
			each(h)
		}
	}
}

func (h *host) take(ty wire.Type, payload []byte) ([]byte, error) {
	switch ty {
	case wire.TypeMoved:
		m, err := wire.ParseMoved(payload)
		h.moved[m.Token] = &m
		return nil, err
	case wire.TypeHello:
		m, err := wire.ParseHello(payload)
		var out []byte
		for _, p := range m.Processes {
			if rec := h.procs[p.Token]; rec != nil {
				out = wire.AppendMark(out, wire.TypeResume, wire.Mark{Token: p.Token, Seq: rec.last()})
				if rec.acked > 0 { // the ack may have been lost with the connection
					out = wire.AppendMark(out, wire.TypeAck, wire.Mark{Token: p.Token, Seq: rec.acked})
				}
			} else {
				out = wire.AppendForget(out, p.Token)
			}
		}
		h.pendingHello = &m
		return out, err
	case wire.TypeOutput:
		o, err := wire.ParseOutput(payload)
		if err != nil {
			return nil, err
		}
		return h.event(o.Token, o.Seq, process.Event{Seq: o.Seq, Time: time.Unix(0, o.Time),
			Body: process.Wrote{Stream: process.Stream(o.Stream), Offset: o.Offset, Data: o.Data}})
	case wire.TypeEvent:
		e, err := wire.ParseEvent(payload)
		if err != nil {
			return nil, err
		}
		ev, err := process.ParseEvent(e.Event)
		if err != nil {
			return nil, err
		}
		ev.Seq = e.Seq
		return h.event(e.Token, e.Seq, ev)
	case wire.TypeReply:
		r, err := wire.ParseReply(payload)
		h.replies[r.Rev] = r
		return nil, err
	case wire.TypeTaken:
		rev, err := wire.ParseTaken(payload)
		h.taken[rev] = true
		return nil, err
	case wire.TypeEnded:
		h.ended = true
		return nil, nil
	}
	return nil, fmt.Errorf("frame of type %d", ty)
}

func (h *host) event(token string, seq uint64, ev process.Event) ([]byte, error) {
	p := h.procs[token]
	if p == nil {
		return nil, nil // forgotten
	}
	if seq != p.last()+1 {
		return nil, fmt.Errorf("seq %d after %d", seq, p.last())
	}
	switch b := ev.Body.(type) {
	case process.Wrote:
		if want := uint64(len(p.out[b.Stream])); b.Offset != want || len(b.Data) == 0 {
			return nil, fmt.Errorf("%s: %d bytes at %d, want at %d", b.Stream, len(b.Data), b.Offset, want)
		}
		p.out[b.Stream] = append(p.out[b.Stream], b.Data...)
		ev.Body = process.Wrote{Stream: b.Stream, Offset: b.Offset}
	case process.Started:
		p.started = b.PID
	case process.Exited:
		p.exit = &b.Exit
	case process.Finished:
		p.end = &b.Exit
	}
	p.events = append(p.events, ev)
	if h.holdAcks {
		return nil, nil
	}
	p.acked = seq
	return wire.AppendMark(nil, wire.TypeAck, wire.Mark{Token: token, Seq: seq}), nil
}

// disconnect closes the connection; nothing more is read from it.
func (h *host) disconnect() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn.Close()
	h.conn = nil
}

// ackAll acknowledges all events so far, and from now on each one.
func (h *host) ackAll() {
	h.mu.Lock()
	h.holdAcks = false
	var out []byte
	for token, p := range h.procs {
		out = wire.AppendMark(out, wire.TypeAck, wire.Mark{Token: token, Seq: p.last()})
	}
	h.mu.Unlock()
	h.send(out)
}

// start starts a process and returns its token.
func (h *host) start(spec process.Spec) string {
	h.mu.Lock()
	h.rev++
	token := strings.ToLower(ulid.Make().String())
	h.procs[token] = &rec{rev: h.rev, out: make(map[process.Stream][]byte)}
	f := wire.Start{Rev: h.rev, Token: token, Spec: process.AppendSpec(nil, &spec)}
	h.mu.Unlock()
	h.send(wire.AppendStart(nil, &f))
	return token
}

func (h *host) nextRev() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rev++
	return h.rev
}

// await waits until done returns true. It calls done with the host locked.
func (h *host) await(what string, done func() bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		h.mu.Lock()
		err, ok, changed := h.err, done(), h.changed
		h.mu.Unlock()
		if err != nil {
			h.t.Fatalf("await %s: %v", what, err)
		}
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			h.t.Fatalf("await %s: %s", what, h.dump())
		}
	}
}

func (h *host) dump() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for token, p := range h.procs {
		fmt.Fprintf(&b, "\n%s: %d events, stdout %d, stderr %d, pty %.200q, exit %+v, end %+v", token, len(p.events),
			len(p.out[process.Stdout]), len(p.out[process.Stderr]), p.out[process.PTY], p.exit, p.end)
	}
	return b.String()
}

func (h *host) awaitEnd(token string) *rec {
	h.t.Helper()
	p := h.procs[token]
	h.await("the end of "+token, func() bool { return p.end != nil })
	return p
}

func (h *host) awaitReply(rev uint64) wire.Reply {
	h.t.Helper()
	var r wire.Reply
	h.await(fmt.Sprintf("the reply to %d", rev), func() bool {
		var ok bool
		r, ok = h.replies[rev]
		return ok
	})
	return r
}

// settle returns when the shim has handled all frames sent so far.
func (h *host) settle() {
	h.t.Helper()
	h.awaitReply(h.signal("nobody", 0))
}

func (h *host) stdin(token, data string, eof bool) uint64 {
	rev := h.nextRev()
	h.send(wire.AppendStdin(nil, &wire.Stdin{Rev: rev, Token: token, Command: fmt.Sprint("c", rev), Data: []byte(data), EOF: eof}))
	return rev
}

func (h *host) signal(token string, sig int32) uint64 {
	rev := h.nextRev()
	h.send(wire.AppendSignal(nil, &wire.Signal{Rev: rev, Token: token, Command: fmt.Sprint("c", rev), Signal: sig}))
	return rev
}

// connected returns a host that is connected to a new shim.
func connected(t testing.TB) *host {
	t.Helper()
	socket, _ := startShim(t)
	h := newHost(t, socket)
	h.connect()
	return h
}

func sh(script string) process.Spec {
	return process.Spec{Cmd: "/bin/sh", Args: []string{"-c", script}}
}

func describe(x *process.Exit) string {
	if x == nil {
		return "none"
	}
	if x.Code != nil {
		return fmt.Sprintf("%s %d", x.Cause, *x.Code)
	}
	return fmt.Sprintf("%s by %d", x.Cause, x.Signal)
}
