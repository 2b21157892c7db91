package gateway

import (
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// silentGrace is how long a connection on which nothing was ever asked may stay
// once the gateway ends: what is asked on it may be on its way.
const silentGrace = 300 * time.Millisecond

// silent are the connections on which nothing was asked yet. Clients open some
// in advance, and the server waits for their first request although it ends.
type silent struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// note is the server's hook for the states of its connections. Active says
// nothing here: the server takes a connection for active before it has read.
func (s *silent) note(c net.Conn, state fasthttp.ConnState) {
	switch state {
	case fasthttp.StateNew:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.conns == nil {
			s.conns = make(map[net.Conn]struct{})
		}
		s.conns[c] = struct{}{}
	case fasthttp.StateClosed, fasthttp.StateHijacked:
		s.heard(c)
	}
}

// heard takes note that something was asked, or ended, on a connection.
func (s *silent) heard(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// close ends them.
func (s *silent) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close() //nolint:errcheck // nothing was said on it
	}
	clear(s.conns)
}
