package httpconn

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/recovery"
)

// HandOver takes over the connection of a request and passes it to serve, which must return
// soon and must not use c. The server sends no response and releases its read buffer when serve
// returns. The connection stays registered until it is closed, and its context ends then or in
// Drain. timeout is how long the client may read nothing; 0 means Config.WriteTimeout.
func (s *Conns) HandOver(c *fiber.Ctx, timeout time.Duration, serve func(context.Context, *RawConn)) {
	cn := s.conn(c, false)
	if timeout > 0 {
		cn.write = timeout
	}
	rc := c.Context()
	rc.HijackSetNoResponse(true)
	rc.Hijack(func(hijacked net.Conn) {
		var early []byte
		cn.raw, early = unwrap(hijacked)
		ctx, cancel := context.WithCancelCause(context.Background()) // the connection outlives its request
		cn.cancel = cancel
		raw := &RawConn{Conn: cn.raw, cn: cn, early: early, closed: make(chan struct{})}
		s.add(cn)
		if err := recovery.Do(s.cfg.Log, "hand over connection", func() error {
			serve(ctx, raw)
			return nil
		}); err != nil {
			raw.Close() // best effort
		}
		if !cn.persistent {
			<-raw.closed // the server closes the connection when this returns
		}
	})
}

// RawConn is a connection without HTTP (see [Conns.HandOver]). It begins with the bytes that
// follow the request.
type RawConn struct {
	net.Conn
	cn     *Conn
	early  []byte // read by the server, not yet by the caller
	once   sync.Once
	closed chan struct{} // closed by Close
}

// Read reads what the client sends. It must be called by one goroutine at a time.
func (r *RawConn) Read(p []byte) (int, error) {
	if len(r.early) == 0 {
		return r.Conn.Read(p)
	}
	n := copy(p, r.early)
	if r.early = r.early[n:]; len(r.early) == 0 {
		r.early = nil
	}
	return n, nil
}

// Write sends p. The write timeout restarts whenever the client has read something. After an
// error the connection is unusable. Write must be called by one goroutine at a time.
func (r *RawConn) Write(p []byte) (int, error) {
	if err := r.cn.deliver(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Cancel ends the context of the connection.
func (r *RawConn) Cancel(cause error) { r.cn.cancel(cause) }

// CloseWrite closes the sending side.
func (r *RawConn) CloseWrite() { closeWrite(r.Conn) }

// Close closes the connection and ends its context.
func (r *RawConn) Close() error {
	r.once.Do(func() {
		r.cn.cancel(errLeft)
		r.Conn.Close() // nothing more is sent
		r.cn.conns.remove(r.cn)
		close(r.closed)
	})
	return nil
}
