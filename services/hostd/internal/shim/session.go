package shim

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/services/hostd/internal/reseed"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// session is one connection of hostd. Shim.mu guards everything but conn.
type session struct {
	s       *Shim
	conn    net.Conn
	wake    sync.Cond // signaled when there is something to send, or the session closed
	control []byte    // frames other than events
	ready   []*proc   // processes with something to send, each once
	streams *mux.Mux
	flight  int // bytes sent but not acknowledged, of all processes
	closed  bool
	wg      sync.WaitGroup // reader and writer
}

const (
	attachTimeout = 10 * time.Second
	maxControl    = 4 << 20 // bytes of queued control frames beyond which reading commands stops
	endGrace      = 200 * time.Millisecond
)

// errAway is the error of streams when hostd disconnects.
var errAway = kind.New(kind.Unavailable, "stream", "", "the host's daemon went away")

// serve handles one connection until it ends or a newer one replaces it.
func (s *Shim) serve(conn net.Conn) {
	defer conn.Close()                                  //nolint:errcheck // nothing to be done
	conn.SetReadDeadline(time.Now().Add(attachTimeout)) //nolint:errcheck // the read fails if this did
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
	conn.SetReadDeadline(time.Time{}) //nolint:errcheck // the read fails if this did
	c := s.installSession(h, &a)
	h.drop()
	if c == nil {
		return
	}
	defer c.wg.Done()
	c.read(r)
	s.mu.Lock()
	c.close()
	s.mu.Unlock()
}

// installSession replaces the session by a new connection, unless the current one has a
// higher epoch of hostd. The caller becomes the session's reader.
func (s *Shim) installSession(h *rightsConn, a *wire.Attach) *session {
	s.sessionMu.Lock()
	defer s.sessionMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Epoch < s.epoch {
		return nil
	}
	if old := s.session; old != nil {
		old.close()
		s.mu.Unlock()
		old.wg.Wait() // it may hold memory that an ack on the new connection frees
		s.mu.Lock()
	}
	c := &session{s: s, conn: h.Conn}
	c.wake.L = &s.mu
	c.streams = c.newStreams()
	if s.sandbox != "" && s.sandbox != a.Sandbox {
		s.move(a)
	}
	var hello wire.Hello
	for _, p := range s.procs {
		p.spool.rewind()
		p.queued = false
		if p.moved {
			c.control = wire.AppendMoved(c.control, &wire.Moved{Token: p.token, After: p.after, Spec: p.spec})
		}
		hello.Processes = append(hello.Processes, p.describe())
	}
	c.control = wire.AppendHello(c.control, &hello)
	s.applyAttach(a, h)
	s.session = c
	if s.ended {
		c.control = wire.AppendEnded(c.control)
	}
	c.wg.Add(2)
	go c.write()
	return c
}

// close ends the session; Shim.mu is held.
func (c *session) close() {
	if c.closed {
		return
	}
	c.closed = true
	if c.s.session == c {
		c.s.session = nil
		c.s.makeSpace()
	}
	c.conn.Close() //nolint:errcheck // nothing to be done
	c.streams.Break(errAway)
	c.wake.Broadcast()
}

// send queues a control frame. Shim.mu is held.
func (c *session) send(f func([]byte) []byte) {
	c.control = f(c.control)
	c.wake.Signal()
}

// read handles frames until the connection ends or sends an invalid frame.
func (c *session) read(r *wire.Reader) {
	for {
		t, payload, err := r.Next()
		if err != nil || c.handle(t, payload) != nil {
			return
		}
		c.s.mu.Lock()
		for len(c.control) > maxControl && !c.closed {
			c.wake.Wait()
		}
		closed := c.closed
		c.s.mu.Unlock()
		if closed {
			return
		}
	}
}

func (c *session) handle(t wire.Type, b []byte) error {
	s := c.s
	switch t {
	case wire.TypeStart:
		f, err := wire.ParseStart(b)
		if err != nil {
			return err
		}
		return c.start(&f)
	case wire.TypeStdin:
		f, err := wire.ParseStdin(b)
		return s.command(err, &command{token: f.Token, rev: f.Rev, size: len(b), input: true, do: func(p *proc) { p.write(&f) }})
	case wire.TypeSignal:
		f, err := wire.ParseSignal(b)
		return s.command(err, &command{token: f.Token, rev: f.Rev, size: len(b), do: func(p *proc) { p.signal(&f) }})
	case wire.TypeResize:
		f, err := wire.ParseResize(b)
		return s.command(err, &command{token: f.Token, rev: f.Rev, size: len(b), do: func(p *proc) { p.resize(&f) }})
	case wire.TypeResume:
		m, err := wire.ParseMark(b)
		return c.mark(err, m, (*proc).resume)
	case wire.TypeAck:
		m, err := wire.ParseMark(b)
		return c.mark(err, m, (*proc).ack)
	case wire.TypeForget:
		token, err := wire.ParseForget(b)
		return c.mark(err, wire.Mark{Token: token}, (*proc).abandon)
	case wire.TypeEnd:
		s.end()
	case wire.TypeConclude:
		s.conclude()
	case wire.TypeReboot:
		s.reboot()
	case wire.TypeTime:
		now, err := wire.ParseTime(b)
		if err != nil {
			return err
		}
		if s.pid1 {
			reseed.AdvanceClock(time.Unix(0, now))
		}
	case wire.TypeNetwork:
		n, err := wire.ParseNetwork(b)
		if err != nil {
			return err
		}
		s.network.Apply(n)
	default:
		if t >= wire.TypeStreams {
			return c.streams.Handle(uint8(t), b)
		}
		return wire.ErrMalformed
	}
	return nil
}

// mark applies f to a process, if it exists. Frames that remain from a closed connection
// are ignored.
func (c *session) mark(err error, m wire.Mark, f func(*proc, uint64) error) error {
	if err != nil {
		return err
	}
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	if p := s.procs[m.Token]; p != nil {
		return f(p, m.Seq)
	}
	return nil
}
