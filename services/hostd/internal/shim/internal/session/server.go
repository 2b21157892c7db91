package session

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/output"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// Sandbox is what hostd connects to.
type Sandbox interface {
	// Attach makes the sandbox that of a, and calls install once with the frames that answer
	// a. Frames of later changes are sent after those.
	Attach(a *wire.Attach, install func(frames []byte))

	// Handle handles a frame that is not of a stream. An error closes the connection. There is
	// one call at a time, and none that began before Attach runs while or after Attach does.
	Handle(t wire.Type, payload []byte) error
}

// Config configures a Server.
type Config struct {
	Sandbox Sandbox
	Output  *output.Buffer
	Accept  func(*mux.Stream) // mux.Config.Accept for the streams that hostd opens
}

// Server accepts the connections of hostd. It is safe for concurrent use.
type Server struct {
	cfg Config

	installMu sync.Mutex // serializes new connections, and guards epoch
	epoch     uint64

	mu   sync.Mutex
	last *session // nil: hostd never connected
}

// New returns a server that hostd is not connected to.
func New(cfg Config) *Server { return &Server{cfg: cfg} }

const (
	attachTimeout = 10 * time.Second
	acceptPause   = 20 * time.Millisecond
)

// Accept serves connections until the listener is closed.
func (s *Server) Accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			go s.serve(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			time.Sleep(acceptPause) // out of descriptors: a shim that cannot be reached is lost
		}
	}
}

// Send queues the frame that f appends, if hostd is connected.
func (s *Server) Send(f func(dst []byte) []byte) {
	if c := s.session(); c != nil {
		c.send(f)
	}
}

// SendSoon is Send for a frame that waits at most a millisecond for events of processes.
func (s *Server) SendSoon(f func(dst []byte) []byte) {
	if c := s.session(); c != nil {
		c.sendSoon(f)
	}
}

// Flush sends the queued frames of a shim that ends. It returns when that is done, or when
// hostd has disconnected or ctx ends.
func (s *Server) Flush(ctx context.Context) {
	if c := s.session(); c != nil {
		c.flush(ctx)
	}
}

// OpenStream opens a stream to hostd. It returns io.ErrClosedPipe if hostd is not connected.
func (s *Server) OpenStream(ctx context.Context, target string) (*mux.Stream, error) {
	c := s.session()
	if c == nil || c.isClosed() {
		return nil, io.ErrClosedPipe
	}
	return c.streams.Open(ctx, target)
}

// session returns the last session, which may be closed.
func (s *Server) session() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// serve handles one connection until it ends or a newer one replaces it.
func (s *Server) serve(conn net.Conn) {
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(attachTimeout))
	h := &rightsConn{Conn: conn, fd: -1}
	r := wire.NewReader(h)
	defer h.drop()
	t, payload, err := r.Next()
	if err != nil || t != wire.TypeAttach {
		return
	}
	a, err := wire.ParseAttach(payload)
	if errors.Is(err, wire.ErrVersion) {
		conn.Write(wire.AppendHello(nil, &wire.Hello{})) //nolint:errcheck // without it hostd gives up later
	}
	if err != nil {
		return
	}
	conn.SetReadDeadline(time.Time{})
	c := s.install(h, &a)
	h.drop()
	if c == nil {
		return
	}
	defer c.wg.Done()
	c.read(r)
	c.close()
}

// install replaces the session by a new connection, unless the current one has a higher epoch
// of hostd. The caller becomes the session's reader.
func (s *Server) install(h *rightsConn, a *wire.Attach) *session {
	s.installMu.Lock()
	defer s.installMu.Unlock()
	if a.Epoch < s.epoch {
		return nil
	}
	s.epoch = a.Epoch
	if old := s.session(); old != nil {
		old.close()
		old.wg.Wait() // its last frame may change what the next Hello says
	}
	if a.Limits.Disk > 0 && !s.cfg.Output.HasFile() {
		if fd, ok := h.take(); ok {
			s.cfg.Output.SetFile(fd)
		}
	}
	c := newSession(s, h.Conn)
	s.cfg.Sandbox.Attach(a, func(frames []byte) {
		c.control = frames
		s.cfg.Output.Connect(c.setPending)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last = c
	})
	c.wg.Add(2)
	go c.write()
	return c
}
