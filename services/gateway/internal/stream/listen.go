package stream

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// Listen gives ln's connections to an HTTP server such that they outlive the requests
// in which streams take them over. The server closes a hijacked connection as soon as
// the hijack returns, and takes its read buffer back only then: kept by its own means
// (KeepHijackedConns), each stream would leave it one to make anew.
func Listen(ln net.Listener) net.Listener { return listener{ln} }

type listener struct{ net.Listener }

const (
	scarce     = 5 * time.Millisecond // before the next try where there is no descriptor for a connection,
	mostScarce = time.Second          // and twice as long each time, up to that
)

// Accept waits for the next connection, also where there are no descriptors or no memory
// for one: the server would end at that, and with it all connections that it has.
func (l listener) Accept() (net.Conn, error) {
	for wait := scarce; ; wait = min(2*wait, mostScarce) {
		c, err := l.Listener.Accept()
		if err == nil {
			return &held{Conn: c}, nil
		}
		if !passes(err) {
			return nil, err
		}
		time.Sleep(wait) // who closes the listener is heard after it
	}
}

// passes reports whether an error of Accept is gone when others have given something back.
func passes(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// held is a connection as the server has it.
type held struct {
	net.Conn
	head  []byte      // read already, and to be read again
	taken atomic.Bool // by a stream, which closes Conn itself
}

// Read gives the bytes read already, then those of the connection.
func (h *held) Read(p []byte) (int, error) {
	if len(h.head) == 0 {
		return h.Conn.Read(p)
	}
	n := copy(p, h.head)
	if h.head = h.head[n:]; len(h.head) == 0 {
		h.head = nil
	}
	return n, nil
}

// ReadFrom has the connection read r itself where it can (io.ReaderFrom).
func (h *held) ReadFrom(r io.Reader) (int64, error) { return io.Copy(h.Conn, r) }

// Close closes the connection, unless a stream has it.
func (h *held) Close() error {
	if h.taken.Load() {
		return nil
	}
	return h.Conn.Close()
}

// below gives the connection that the server has as c.
func below(c net.Conn) net.Conn {
	if h, ok := c.(*held); ok {
		return h.Conn
	}
	return c
}
