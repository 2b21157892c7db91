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

// connFrom returns hostd's end of a connection with a shim that ignores its input and sends b.
func connFrom(t *testing.T, b []byte) (*link.Conn, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() })
	go io.Copy(io.Discard, theirs)
	go func() {
		theirs.Write(b)
		theirs.Close()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
		{"an empty hello", wire.AppendFrame(nil, wire.TypeHello, nil)},
		{"a duplicate process", process(wire.Process{Token: token, First: 2, Last: 1}, wire.Process{Token: token, First: 2, Last: 1})},
		{"a seq reserved for hostd", process(wire.Process{Token: token, First: 1, Last: 1})},
		{"an end before the start", process(wire.Process{Token: token, First: 9, Last: 7})},
		{"an empty moved", wire.AppendFrame(nil, wire.TypeMoved, nil)},
		{"too many moved", bytes.Repeat(wire.AppendMoved(nil, &wire.Moved{Token: token, Spec: make([]byte, 1<<20)}), 65)},
		{"a seq out of range", process(wire.Process{Token: token, First: 2, Last: 1<<64 - 1})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := connFrom(t, tt.bytes); !errors.Is(err, link.ErrHostile) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestShimOfAnotherVersion: it is not hostile, but cannot be used.
func TestShimOfAnotherVersion(t *testing.T) {
	hello := wire.AppendHello(nil, &wire.Hello{})
	hello[8+4]++ // the version, after the frame's head and the protocol
	if _, err := connFrom(t, hello); !errors.Is(err, wire.ErrVersion) || errors.Is(err, link.ErrHostile) {
		t.Errorf("got %v", err)
	}
}

func TestSilentShim(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go io.Copy(io.Discard, theirs)
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
		{"maximum output", output(wire.MaxData), true},
		{"too much output", output(wire.MaxData + 1), false},
		{"empty output", output(0), false},
		{"an event", event(process.Started{PID: 1}), true},
		{"output in an event frame", event(process.Wrote{Stream: 1, Data: []byte("x")}), false},
		{"an event that is too long", event(process.Failed{Message: string(make([]byte, 70<<10))}), false},
		{"an invalid event", wire.AppendEvent(nil, token, 2, func(dst []byte) []byte { return append(dst, 0xff) }), false},
		{"a frame of hostd", wire.AppendEnd(nil), false},
		{"an unknown type", wire.AppendFrame(nil, 200, nil), false},
		{"a reply that is too long", wire.AppendReply(nil, &wire.Reply{Error: string(make([]byte, 5000))}), false},
		{"an invalid head", []byte("\xff\xff\xff\xff\x42\x00\x00\x00"), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := connFrom(t, append(wire.AppendHello(nil, &wire.Hello{}), tt.bytes...))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Next(); (err == nil) != tt.ok || err != nil && !errors.Is(err, link.ErrHostile) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestEventHoldsNoMemoryOfItsFrame: only the event's own fields are kept, however large its
// frame.
func TestEventHoldsNoMemoryOfItsFrame(t *testing.T) {
	padded := wire.AppendEvent(nil, token, 2, func(dst []byte) []byte {
		dst = process.AppendEvent(dst, &process.Event{Time: time.Now(), Body: process.Started{PID: 1}})
		return protowire.AppendBytes(protowire.AppendTag(dst, 1000, protowire.BytesType), make([]byte, 32<<10))
	})
	c, err := connFrom(t, append(wire.AppendHello(nil, &wire.Hello{}), padded...))
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
