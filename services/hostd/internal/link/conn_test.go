package link_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

const token = "01arz3ndektsv4rrffq69g5fav"

// says gives hostd's end of a talk with a shim that reads what it is told and
// says the given bytes.
func says(t *testing.T, b []byte) (*link.Conn, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() }) //nolint:errcheck // it may be closed
	go io.Copy(io.Discard, theirs)       //nolint:errcheck // until it is closed
	go func() {
		theirs.Write(b) //nolint:errcheck // hostd may hang up
		theirs.Close()  //nolint:errcheck // it may be closed
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, _, err := link.Attach(ctx, ours, &wire.Attach{Epoch: 1}, nil, &link.Pool{}, nil)
	if err == nil {
		t.Cleanup(c.Close)
	}
	return c, err
}

func TestHostileHello(t *testing.T) {
	process := func(p ...wire.Process) []byte { return wire.AppendHello(nil, &wire.Hello{Processes: p}) }
	tests := []struct {
		name  string
		bytes []byte
	}{
		{"another frame", wire.AppendTaken(nil, 1)},
		{"an empty one", wire.AppendFrame(nil, wire.TypeHello, nil)},
		{"a process twice", process(wire.Process{Token: token, First: 2, Last: 1}, wire.Process{Token: token, First: 2, Last: 1})},
		{"a seq that is hostd's", process(wire.Process{Token: token, First: 1, Last: 1})},
		{"an end before the start", process(wire.Process{Token: token, First: 9, Last: 7})},
		{"one that moved and is none", wire.AppendFrame(nil, wire.TypeMoved, nil)},
		{"more that moved than can be", bytes.Repeat(wire.AppendMoved(nil, &wire.Moved{Token: token, Spec: make([]byte, 1<<20)}), 65)},
		{"a seq without end", process(wire.Process{Token: token, First: 2, Last: 1<<64 - 1})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := says(t, tt.bytes); !errors.Is(err, link.ErrHostile) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestSilentShim(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()           //nolint:errcheck // the end of the test
	go io.Copy(io.Discard, theirs) //nolint:errcheck // until it is closed
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := link.Attach(ctx, ours, &wire.Attach{}, nil, &link.Pool{}, nil); err == nil {
		t.Error("no error")
	}
}

func TestHostileFrames(t *testing.T) {
	event := func(b process.Body) []byte {
		e := process.Event{Time: time.Now(), Body: b}
		return wire.AppendEvent(nil, token, 2, func(dst []byte) []byte { return process.AppendEvent(dst, &e) })
	}
	output := func(n int) []byte {
		o := wire.Output{Token: token, Seq: 2, Stream: 1, Data: make([]byte, n)}
		return append(wire.AppendOutputHead(nil, &o), o.Data...)
	}
	tests := []struct {
		name  string
		bytes []byte
		ok    bool
	}{
		{"output", output(1), true},
		{"as much as can be", output(wire.MaxData), true},
		{"too much", output(wire.MaxData + 1), false},
		{"none", output(0), false},
		{"an event", event(process.Started{PID: 1}), true},
		{"output that poses as one", event(process.Wrote{Stream: 1, Data: []byte("x")}), false},
		{"one that is too long", event(process.Failed{Message: string(make([]byte, 70<<10))}), false},
		{"one that is none", wire.AppendEvent(nil, token, 2, func(dst []byte) []byte { return append(dst, 0xff) }), false},
		{"a frame that is hostd's", wire.AppendEnd(nil), false},
		{"a type nobody knows", wire.AppendFrame(nil, 200, nil), false},
		{"a reply that is too long", wire.AppendReply(nil, &wire.Reply{Error: string(make([]byte, 5000))}), false},
		{"a head that is none", []byte("\xff\xff\xff\xff\x42\x00\x00\x00"), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := says(t, append(wire.AppendHello(nil, &wire.Hello{}), tt.bytes...))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Next(); (err == nil) != tt.ok || err != nil && !errors.Is(err, link.ErrHostile) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// However large a frame an event comes in, what is kept of it is only what it says.
func TestEventHoldsNoMemoryOfItsFrame(t *testing.T) {
	padded := wire.AppendEvent(nil, token, 2, func(dst []byte) []byte {
		dst = process.AppendEvent(dst, &process.Event{Time: time.Now(), Body: process.Started{PID: 1}})
		return protowire.AppendBytes(protowire.AppendTag(dst, 1000, protowire.BytesType), make([]byte, 32<<10))
	})
	c, err := says(t, append(wire.AppendHello(nil, &wire.Hello{}), padded...))
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Next()
	if err != nil {
		t.Fatal(err)
	}
	if m.Mem != nil || m.Event.Type() != "start" {
		t.Errorf("%s with %d bytes", m.Event.Type(), len(m.Mem))
	}
}
