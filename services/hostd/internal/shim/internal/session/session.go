package session

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// session is one connection of hostd.
type session struct {
	server  *Server
	conn    net.Conn
	streams *mux.Mux
	wg      sync.WaitGroup // reader and writer

	mu      sync.Mutex  // taken after all others but those of streams
	wake    sync.Cond   // signaled when there is something to send, or the session closed
	control []byte      // frames other than events
	soon    *time.Timer // sends the frames of sendSoon; nil: there were none
	pending bool        // there may be events, or frames of streams
	last    bool        // the writer ends when control is empty
	closed  bool

	written chan struct{} // closed when the writer has ended
}

// errAway is the error of streams when hostd disconnects.
var errAway = kind.New(kind.Unavailable, "stream", "", "the host's daemon went away")

func newSession(s *Server, conn net.Conn) *session {
	c := &session{server: s, conn: conn, written: make(chan struct{})}
	c.wake.L = &c.mu
	c.streams = mux.New(mux.Config{
		MaxStreams: wire.MaxStreams,
		MaxOpen:    wire.MaxStreams,
		Window:     wire.WindowStream,
		Wake:       c.setPending,
		Accept:     s.cfg.Accept,
	})
	return c
}

// close ends the session. When it returns for the first time, hostd counts as disconnected.
func (c *session) close() {
	c.mu.Lock()
	was := c.closed
	c.closed, c.control = true, nil
	c.wake.Broadcast()
	c.mu.Unlock()
	if was {
		return
	}
	c.server.cfg.Output.Disconnect()
	c.conn.Close()
	c.streams.Break(errAway)
}

// flush sends what is left of control, and nothing after that. It returns when that is done,
// or when the session or ctx ends.
func (c *session) flush(ctx context.Context) {
	c.mu.Lock()
	c.last = true
	c.wake.Broadcast()
	c.mu.Unlock()
	select {
	case <-c.written:
	case <-ctx.Done():
	}
}

func (c *session) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// read handles frames until the connection ends or sends an invalid frame. Frames that remain
// from a closed connection are ignored.
func (c *session) read(r *wire.Reader) {
	for {
		t, payload, err := r.Next()
		if err != nil || !c.awaitControl() || c.handle(t, payload) != nil {
			return
		}
	}
}

// awaitControl waits while too many control frames are queued. It reports whether the session
// is open.
func (c *session) awaitControl() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.control) > maxControl && !c.closed {
		c.wake.Wait()
	}
	return !c.closed
}

func (c *session) handle(t wire.Type, b []byte) error {
	if t >= wire.TypeStreams {
		return c.streams.Handle(uint8(t), b)
	}
	return c.server.cfg.Sandbox.Handle(t, b)
}
