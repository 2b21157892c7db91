package websocket_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
	"github.com/millrace/millrace/services/gateway/internal/websocket/websockettest"
)

// notices encodes a record as binary messages, one per event: its [surfacetest.What], the seq, the
// stream or exit code, and the data.
type notices struct{}

const noticeHead = 1 + 8 + 1

func (notices) append(dst []byte, what surfacetest.What, seq process.Seq, detail byte, data []byte) []byte {
	at := len(dst)
	dst = append(websocket.BeginMessage(dst), byte(what))
	dst = append(binary.BigEndian.AppendUint64(dst, seq), detail)
	return websocket.EndMessage(append(dst, data...), at, websocket.Binary)
}

const signaled = 255 // exit code of a process that a signal ended

func (e notices) AppendEvent(dst []byte, ev process.Event) ([]byte, error) {
	switch b := ev.Body.(type) {
	case process.Started:
		return e.append(dst, surfacetest.Start, ev.Seq, 0, nil), nil
	case process.Wrote:
		return e.append(dst, surfacetest.Data, ev.Seq, byte(b.Stream), b.Data), nil
	case process.Gap:
		return e.append(dst, surfacetest.Gap, ev.Seq, 0, nil), nil
	case process.Failed:
		return dst, kind.New(kind.Kind(b.Kind), "start", "", b.Message)
	case process.Finished:
		switch {
		case b.Exit.Code != nil && *b.Exit.Code == signaled:
			return e.append(dst, surfacetest.End, ev.Seq, 0, []byte{signaled}), nil
		case b.Exit.Code != nil:
			return e.append(dst, surfacetest.End, ev.Seq, byte(*b.Exit.Code), nil), nil
		case b.Exit.Signal != 0:
			return e.append(dst, surfacetest.End, ev.Seq, signaled, nil), nil
		}
		return dst, kind.New(kind.Unavailable, "read", "", "the exit was not observed")
	}
	return dst, nil
}

const keepalive = 30 * time.Second

func (e notices) AppendIdle(dst []byte, silent time.Duration) ([]byte, time.Duration) {
	if silent >= keepalive {
		return e.append(dst, surfacetest.Keepalive, 0, 0, nil), keepalive
	}
	return dst, keepalive
}

func (e notices) AppendEnd(dst []byte, err error) []byte {
	if err != nil {
		return e.append(dst, surfacetest.Last, 0, 0, []byte(kind.Of(err).String()))
	}
	return e.append(dst, surfacetest.Last, 0, 0, nil)
}

// An encoder whose messages are frames keeps the contract of all surfaces.
func TestFramesKeepTheContractOfSurfaces(t *testing.T) {
	surfacetest.Run(t, surfacetest.Surface{
		Exits: true,
		Encoder: func(t *testing.T, _ *surfacetest.Record, position string) (stream.Encoder, process.Seq) {
			after := process.Seq(0)
			if position != "" {
				n, err := strconv.ParseUint(position, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				after = n
			}
			return notices{}, after
		},
		Decode: func(t *testing.T, raw []byte) []surfacetest.Unit {
			frames, err := websockettest.ReadAll(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			units := make([]surfacetest.Unit, len(frames))
			for i, f := range frames {
				units[i] = unit(t, f)
			}
			return units
		},
	})
}

func unit(t testing.TB, f websockettest.Frame) surfacetest.Unit {
	t.Helper()
	if f.Op != websockettest.Binary || len(f.Payload) < noticeHead {
		t.Fatalf("opcode %d, %q", f.Op, f.Payload)
	}
	data, detail := f.Payload[noticeHead:], f.Payload[noticeHead-1]
	u := surfacetest.Unit{What: surfacetest.What(f.Payload[0])}
	switch u.What {
	case surfacetest.Data:
		u.Stream, u.Data = process.Stream(detail), data
	case surfacetest.End:
		u.Code = int(detail)
		if len(data) > 0 {
			u.Code = signaled
		} else if detail == signaled {
			u.Code = -1
		}
	case surfacetest.Last:
		u.Err = string(data)
	}
	if seq := binary.BigEndian.Uint64(f.Payload[1:]); seq > 0 {
		u.Position = strconv.FormatUint(seq, 10)
	}
	return u
}

// closer reports that a source was closed.
type closer struct {
	stream.Source
	closed chan struct{}
}

func (c *closer) Close() {
	c.Source.Close()
	close(c.closed)
}

// streaming serves a record; hold is the number of events before it waits, or 0.
func streaming(t *testing.T, r *surfacetest.Record, hold int) (*fixture, chan struct{}) {
	t.Helper()
	src := r.Source(0)
	src.Batch, src.Hold = 2, hold
	closed := make(chan struct{})
	return serve(t, stream.Config{}, websocket.Options{}, websocket.Handler{Drain: websocket.LeaveToServe, Serve: func(ctx context.Context, c *websocket.Conn) error {
		return c.Stream(ctx, &closer{src, closed}, notices{})
	}}), closed
}

func script() *surfacetest.Record {
	return surfacetest.NewRecord("script", process.Spec{Cmd: "x"}, surfacetest.Out("a"), surfacetest.Out(strings.Repeat("b", 100<<10)), surfacetest.Code(3))
}

func whats(units []surfacetest.Unit) (all []surfacetest.What) {
	for _, u := range units {
		all = append(all, u.What)
	}
	return all
}

func TestARecordIsStreamed(t *testing.T) {
	f, closed := streaming(t, script(), 0)
	c := f.raw(t, text("ignored"))
	var units []surfacetest.Unit
	for range 5 {
		units = append(units, unit(t, c.frame(t)))
	}
	if got := whats(units); got[0] != surfacetest.Start || got[3] != surfacetest.End || got[4] != surfacetest.Last || len(units[2].Data) != 100<<10 || units[3].Code != 3 {
		t.Errorf("got %v", got)
	}
	c.wantClose(t, 1000, "")
	<-closed
}

func TestAStreamEndsWhenItsClientLeaves(t *testing.T) {
	f, closed := streaming(t, script(), 3)
	c := f.raw(t)
	c.frame(t)
	c.Close()
	<-closed
	if err := f.ended(t); !kind.Is(err, kind.Canceled) {
		t.Errorf("the stream ended with %v, want Canceled", err)
	}
}

func TestAStreamEndsInADrainInItsOwnWords(t *testing.T) {
	f, _ := streaming(t, script(), 3)
	c := f.raw(t)
	for range 2 {
		c.frame(t)
	}
	go f.streams.Drain(t.Context())
	if u := unit(t, c.frame(t)); u.What != surfacetest.Last || u.Err != "unavailable" {
		t.Errorf("got %+v", u)
	}
	c.wantClose(t, 1001, "the gateway is shutting down; reconnect")
}

// Several records may share a connection.
func TestStreamsShareAConnection(t *testing.T) {
	const n = 10
	f := serve(t, stream.Config{}, websocket.Options{}, websocket.Handler{Serve: func(ctx context.Context, c *websocket.Conn) error {
		done := make(chan error, n)
		for range n {
			go func() { done <- stream.Copy(ctx, c, script().Source(0), notices{}) }()
		}
		var err error
		for range n {
			err = errors.Join(err, <-done)
		}
		return err
	}})
	c := f.raw(t)
	last := 0
	for {
		got := c.frame(t)
		if got.Op == websockettest.Close {
			break
		}
		if unit(t, got).What == surfacetest.Last {
			last++
		}
	}
	if last != n {
		t.Errorf("%d records ended, want %d", last, n)
	}
}

var _ stream.Writer = (*websocket.Conn)(nil)

func ExampleEndpoint_Upgrade() {
	app := fiber.New()
	server := websocket.New(stream.New(stream.Config{}))
	small := server.Endpoint(websocket.Options{MaxMessage: 64 << 10})
	upper := websocket.Handler{Serve: func(_ context.Context, c *websocket.Conn) error {
		for {
			m, err := c.Read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			err = c.Write(websocket.Text, bytes.ToUpper(m.Data))
			m.Release()
			if err != nil {
				return err
			}
		}
	}}
	app.Get("/upper", func(c *fiber.Ctx) error { return small.Upgrade(c, "tenant", upper) })
}
