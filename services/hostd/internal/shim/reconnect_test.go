package shim_test

import (
	"bytes"
	"fmt"
	"net"
	"testing"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// TestReconnectAtEveryEvent: hostd reconnects after every single event. No byte is lost or
// duplicated, no seq is used twice (host checks each event).
func TestReconnectAtEveryEvent(t *testing.T) {
	h := connected(t)
	token := h.start(process.Spec{Cmd: "sh", Args: []string{"-c", "i=0; while [ $i -lt 300 ]; do echo $i; echo $i >&2; i=$((i+1)); done; exit 9"}})
	p := h.procs[token]
	for seen, done := 0, false; !done; {
		h.await("another event", func() bool {
			now := len(p.events)
			done = p.end != nil
			if !done && now == seen {
				return false
			}
			seen = now
			return true
		})
		if !done {
			h.connect()
		}
	}
	var want bytes.Buffer
	for i := range 300 {
		fmt.Fprintln(&want, i)
	}
	if !bytes.Equal(p.out[process.Stdout], want.Bytes()) || !bytes.Equal(p.out[process.Stderr], want.Bytes()) || describe(p.end) != "exited 9" {
		t.Errorf("%d and %d bytes, %s", len(p.out[process.Stdout]), len(p.out[process.Stderr]), describe(p.end))
	}
}

// TestReconnectInAFlood reconnects in the middle of fast output.
func TestReconnectInAFlood(t *testing.T) { flood(t, connected(t)) }

func flood(t *testing.T, h *host) {
	t.Helper()
	const size = 64 << 20
	token := h.start(sh(fmt.Sprintf("yes 0123456789abcde | head -c %d", size)))
	p := h.procs[token]
	for next := 1 << 20; next < size; next += 2 << 20 {
		h.await("more output", func() bool { return len(p.out[process.Stdout]) >= next || p.end != nil })
		h.connect()
	}
	h.awaitEnd(token)
	if want := bytes.Repeat([]byte("0123456789abcde\n"), size/16); !bytes.Equal(p.out[process.Stdout], want) {
		t.Errorf("wrong output of %d bytes", len(p.out[process.Stdout]))
	}
}

// TestNextEpochContinuesWhereTheRecordEnds: events that were stored but not acknowledged
// when hostd died are not sent again; events that were sent but not stored are.
func TestNextEpochContinuesWhereTheRecordEnds(t *testing.T) {
	socket, _ := startShim(t)
	h := newHost(t, socket)
	h.holdAcks = true
	h.connect()
	token := h.start(sh("for i in 1 2 3 4 5; do echo $i; sleep 0.01; done; sleep 60"))
	h.awaitOutput(token, "5\n")
	second := newHost(t, socket)
	second.epoch, second.rev = 2, 1000
	p := h.procs[token]
	stored, size := min(3, len(p.events)-1), len(p.out[process.Stdout]) // on a busy machine an event has several lines
	if w, ok := p.events[stored].Body.(process.Wrote); ok {
		size = int(w.Offset)
	}
	kept := &rec{out: make(map[process.Stream][]byte), events: p.events[:stored:stored]}
	kept.out[process.Stdout] = p.out[process.Stdout][:size]
	second.procs[token] = kept
	second.connect()
	second.awaitOutput(token, "1\n2\n3\n4\n5\n")
	second.signal(token, 9)
	second.awaitEnd(token)
}

func TestOlderEpochIsRejected(t *testing.T) {
	socket, _ := startShim(t)
	h := newHost(t, socket)
	h.epoch = 7
	h.connect()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.Write(wire.AppendAttach(nil, &wire.Attach{Epoch: 6}))
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the older epoch got an answer")
	}
	h.awaitEnd(h.start(sh("true"))) // the newer one is still connected
}

// TestHostdOfAnotherVersionIsRefused: it gets a Hello, from which it learns the version, and
// the session is not disturbed.
func TestHostdOfAnotherVersionIsRefused(t *testing.T) {
	socket, _ := startShim(t)
	h := newHost(t, socket)
	h.connect()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	attach := wire.AppendAttach(nil, &wire.Attach{Epoch: 1 << 60})
	attach[8+4]++ // the version, after the frame's head and the protocol
	conn.Write(attach)
	r := wire.NewReader(conn)
	ty, payload, err := r.Next()
	if err != nil || ty != wire.TypeHello {
		t.Fatalf("frame %d, %v; want a hello", ty, err)
	}
	if hello, err := wire.ParseHello(payload); err != nil || len(hello.Processes) != 0 {
		t.Errorf("%+v, %v", hello, err)
	}
	if _, _, err := r.Next(); err == nil {
		t.Error("the connection is still open")
	}
	h.awaitEnd(h.start(sh("true")))
}

// TestInvalidConnectionIsClosed: invalid data on the socket does not disturb the session.
func TestInvalidConnectionIsClosed(t *testing.T) {
	socket, _ := startShim(t)
	h := newHost(t, socket)
	h.connect()
	for _, junk := range []string{"GET / HTTP/1.1\r\n\r\n", "\xff\xff\xff\xff\x01\x00\x00\x00", string(wire.AppendEnd(nil))} {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		conn.Write([]byte(junk))
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("%q was answered", junk)
		}
		conn.Close()
	}
	h.awaitEnd(h.start(sh("true")))
}

func TestForgetKills(t *testing.T) {
	h := connected(t)
	token := h.start(process.Spec{Cmd: "sleep", Args: []string{"65.5"}})
	p := h.procs[token]
	h.await("start", func() bool { return p.started != 0 })
	h.send(wire.AppendForget(nil, token))
	for range 100 {
		h.awaitEnd(h.start(sh("sleep 0.01")))
		if len(pidsOf(t, "65.5")) == 0 {
			return
		}
	}
	t.Error("the process still runs")
}
