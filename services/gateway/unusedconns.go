package gateway

import (
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// unusedGrace is how long a connection without any request stays open once the gateway
// drains: a first request may be on its way.
const unusedGrace = 300 * time.Millisecond

// unusedConns is the set of connections without any request yet. Clients open some in advance, and
// the server would wait for their first request even while it shuts down.
type unusedConns struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// track is the server's hook for connection states. It ignores StateActive: the server reports a
// connection as active before it has read anything.
func (s *unusedConns) track(c net.Conn, state fasthttp.ConnState) {
	switch state {
	case fasthttp.StateNew:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.conns == nil {
			s.conns = make(map[net.Conn]struct{})
		}
		s.conns[c] = struct{}{}
	case fasthttp.StateClosed, fasthttp.StateHijacked:
		s.remove(c)
	}
}

// remove removes a connection on which a request arrived, or which ended.
func (s *unusedConns) remove(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// close closes the connections.
func (s *unusedConns) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close() //nolint:errcheck // no request is lost
	}
	clear(s.conns)
}
