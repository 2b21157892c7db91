package httpconn

import (
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// UnusedGrace is how long a connection without any request stays open once the gateway
// drains: a first request may be on its way.
const UnusedGrace = 300 * time.Millisecond

// UnusedConns is the set of connections without any request yet. Clients open some in advance, and
// the server would wait for their first request even while it shuts down.
type UnusedConns struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// Track is the server's hook for connection states. It ignores StateActive: the server reports a
// connection as active before it has read anything.
func (s *UnusedConns) Track(c net.Conn, state fasthttp.ConnState) {
	switch state {
	case fasthttp.StateNew:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.conns == nil {
			s.conns = make(map[net.Conn]struct{})
		}
		s.conns[c] = struct{}{}
	case fasthttp.StateClosed, fasthttp.StateHijacked:
		s.Remove(c)
	}
}

// Remove removes a connection on which a request arrived, or which ended.
func (s *UnusedConns) Remove(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Close closes the connections.
func (s *UnusedConns) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
	clear(s.conns)
}
