package port

import (
	"crypto/tls"
	"net"
	"sync/atomic"

	"github.com/millrace/millrace/events/mux"
)

// patient is a connection to a server that may stop listening before it has said
// all: what cannot be sent is dropped as long as the server may say something, so
// that the transport goes on to read. A server that is gone is found by that.
type patient struct {
	*mux.Stream
	over atomic.Bool // nothing more is read
}

// Read reads the answer.
func (p *patient) Read(b []byte) (int, error) {
	n, err := p.Stream.Read(b)
	if err != nil {
		p.over.Store(true)
	}
	return n, err
}

// Write fails only where nothing is read any more.
func (p *patient) Write(b []byte) (int, error) {
	n, err := p.Stream.Write(b)
	if err != nil && !p.over.Load() {
		return len(b), nil
	}
	return n, err
}

// Close ends the stream.
func (p *patient) Close() error {
	p.over.Store(true)
	return p.Stream.Close()
}

// visitor is a connection whose protocol was switched: what comes on it is traffic,
// and wakes a sandbox that was paused meanwhile.
type visitor struct {
	mux.Joined
	conn net.Conn // beneath it
	wake func()
}

// CloseWithError ends the connection so that the server does not take it for an end
// in order, behind what was written.
func (v *visitor) CloseWithError(err error) {
	conn := v.conn
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if s, ok := conn.(*mux.Stream); ok {
		s.CloseWithError(err)
	}
	v.Close() //nolint:errcheck // it is given up
}

// Write wakes the sandbox unless it runs.
func (v *visitor) Write(b []byte) (int, error) {
	v.wake()
	return v.Joined.Write(b)
}
