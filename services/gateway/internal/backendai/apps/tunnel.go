package apps

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

const (
	// chunk is the largest message that is sent.
	chunk = 64<<10 - 1
	// window is what a stream holds in each direction at most.
	window = 256 << 10
	memory = 2*window + chunk
)

// A Tunnel is a WebSocket connection to a service.
type Tunnel struct {
	Conn   *websocket.Conn
	Budget *stream.Budget
	// Open connects to the service. It returns Precondition if nothing accepts the connection.
	Open func(ctx context.Context) (*mux.Stream, error)
	// Over reports whether the session has ended, after a connection has failed.
	Over func() bool
	// Active is called when data has passed, by several goroutines.
	Active func()
	Slog   *slog.Logger
}

// Serve copies bytes until either end closes, and closes the connection with a code.
func (t *Tunnel) Serve(ctx context.Context) {
	defer t.Budget.Shrink(0)
	if !t.Budget.Grow(memory) {
		t.Conn.Close(websocket.TryLater, kind.Message(stream.ErrOverBudget))
		return
	}
	opened := make(chan *mux.Stream, 1)
	defer close(opened)
	go recovery.Do(t.Slog, "tunnel", func() error { t.send(opened); return nil }) //nolint:errcheck // ends with the connection
	s, err := t.Open(ctx)
	if err != nil {
		t.end(err)
		return
	}
	opened <- s
	err = t.receive(s)
	t.end(err)
	if !errors.Is(err, net.ErrClosed) { // send has not closed it
		s.CloseWithError(errEnded)
	}
}

var errEnded = kind.New(kind.Canceled, "tunnel", "", "the client left")

// send passes messages to the service. It reads from the beginning, so that pings are answered
// while the service starts.
func (t *Tunnel) send(opened <-chan *mux.Stream) {
	var s *mux.Stream
	defer func() {
		if s == nil { // an open that succeeds meanwhile
			s = <-opened
		}
		if s != nil {
			s.CloseWithError(errEnded)
		}
	}()
	var failed error
	for {
		m, err := t.Conn.Read()
		if s == nil && err == nil || errors.Is(err, io.EOF) && s == nil {
			if s = <-opened; s == nil {
				m.Release()
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			s.Close()
			return
		case err != nil:
			return
		case m.Type != websocket.Binary:
			t.Conn.Close(websocket.Unsupported, "messages must be binary")
		case failed == nil: // else the service does not read any more, but it may still send
			_, failed = s.Write(m.Data)
			t.Active()
		}
		m.Release()
	}
}

// receive passes what the service sends to the client, up to its end or an error.
func (t *Tunnel) receive(s *mux.Stream) error {
	buf := websocket.BeginMessage(make([]byte, stream.Headroom, stream.Headroom+chunk+16))
	for {
		n, err := s.Read(buf[len(buf) : len(buf)+chunk])
		if n > 0 {
			out := websocket.EndMessage(buf[:len(buf)+n], stream.Headroom, websocket.Binary)
			if err := t.Conn.Flush(out); err != nil {
				return err
			}
			t.Active()
		}
		if err != nil {
			return err
		}
	}
}

// end closes the connection with the code for the end of the stream, unless it is closed.
func (t *Tunnel) end(err error) {
	switch {
	case errors.Is(err, io.EOF):
		t.Conn.Close(websocket.GoingAway, "the service closed the connection")
	case kind.Is(err, kind.Precondition), kind.Is(err, kind.Exhausted), errors.Is(err, stream.ErrOverBudget):
		t.Conn.Close(websocket.TryLater, kind.Message(err))
	case t.Over():
		t.Conn.Close(websocket.GoingAway, "the session has ended")
	default:
		t.Conn.Close(websocket.Fault, kind.Message(err))
	}
}
