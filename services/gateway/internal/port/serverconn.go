package port

import (
	"crypto/tls"
	"net"
	"sync/atomic"

	"github.com/millrace/millrace/events/mux"
)

// noDeadlineConn is a connection to a server that may stop reading before it has sent
// its response. Data that cannot be written is dropped as long as a response may still
// arrive, so that the transport keeps reading. A read detects that the server is gone.
type noDeadlineConn struct {
	*mux.Stream
	readEnded atomic.Bool // nothing more is read
}

// Read reads the response.
func (p *noDeadlineConn) Read(b []byte) (int, error) {
	n, err := p.Stream.Read(b)
	if err != nil {
		p.readEnded.Store(true)
	}
	return n, err
}

// Write fails only after reading has ended.
func (p *noDeadlineConn) Write(b []byte) (int, error) {
	n, err := p.Stream.Write(b)
	if err != nil && !p.readEnded.Load() {
		return len(b), nil
	}
	return n, err
}

// Close closes the stream.
func (p *noDeadlineConn) Close() error {
	p.readEnded.Store(true)
	return p.Stream.Close()
}

// ingressConn is a client's connection after a protocol switch. Data on it counts as
// traffic and wakes a sandbox that was paused in the meantime.
type ingressConn struct {
	mux.Joined
	conn net.Conn // underlying connection
	wake func()
}

// CloseWithError closes the connection in a way that the server does not take for an
// orderly end of the data.
func (v *ingressConn) CloseWithError(err error) {
	conn := v.conn
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if s, ok := conn.(*mux.Stream); ok {
		s.CloseWithError(err)
	}
	v.Close()
}

// Write wakes the sandbox unless it is running.
func (v *ingressConn) Write(b []byte) (int, error) {
	v.wake()
	return v.Joined.Write(b)
}
