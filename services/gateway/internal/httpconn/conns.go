package httpconn

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
)

// Config configures connections. A zero field means its default.
type Config struct {
	// WriteTimeout is how long a client may read nothing before it is
	// disconnected. Default 30 s.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection may wait for its next request after
	// its stream has ended. Default 2 min.
	IdleTimeout time.Duration
	Log         *slog.Logger
}

// Conns is the registry of the connections that were taken over from the server. Its
// methods may be called concurrently.
type Conns struct {
	cfg Config

	mu       sync.Mutex
	open     map[*Conn]struct{} // connections that are streaming or waiting for their next request
	idle     int                // number of connections in open that are waiting for their next request
	draining bool
	empty    chan struct{} // made by Drain, closed when open is empty
}

// Reasons why a stream is ended from outside.
var (
	errLeft    = kind.New(kind.Canceled, "stream", "", "the client closed the connection")
	errDrain   = kind.New(kind.Unavailable, "stream", "", "the gateway is shutting down; reconnect with your cursor")
	errTimeout = kind.New(kind.Deadline, "stream", "", "the request timed out")
)

// New returns a registry without connections.
func New(cfg Config) *Conns {
	cfg.WriteTimeout = cmp.Or(max(cfg.WriteTimeout, 0), 30*time.Second)
	cfg.IdleTimeout = cmp.Or(max(cfg.IdleTimeout, 0), 2*time.Minute)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Conns{cfg: cfg, open: make(map[*Conn]struct{})}
}

// Take takes over the connection and returns at once; the stream that work writes continues
// after the handler has returned. Its context ends when the client disconnects, after
// head.Timeout, or in Drain.
func (s *Conns) Take(c *fiber.Ctx, head Head, work func(context.Context, *Conn) error) {
	cn := s.conn(c, DiscardBody(c))
	if cn.limit = head.Timeout; head.WriteTimeout > 0 {
		cn.write = head.WriteTimeout
	}
	cn.lifetime, _ = c.Locals(lifetimeKey{}).(context.Context)
	cn.head = head.appendTo(make([]byte, 0, 512), c, cn.chunked, cn.keep)
	cn.hijack(c, func(ctx context.Context) error { return work(ctx, cn) })
}

type lifetimeKey struct{}

// Limit makes the stream of a request end when lifetime ends, with its cause.
func Limit(c *fiber.Ctx, lifetime context.Context) { //nolint:revive // it is not the context of the call
	c.Locals(lifetimeKey{}, lifetime)
}

// conn returns the state of a request's connection; clean reports that the body has
// been read completely.
func (s *Conns) conn(c *fiber.Ctx, clean bool) *Conn {
	server := c.App().Server()
	chunked := c.Request().Header.IsHTTP11()
	lasting := prefixed(c.Context().Conn()) != nil
	return &Conn{
		conns:      s,
		server:     server,
		chunked:    chunked,
		persistent: lasting,
		keep:       chunked && lasting && !c.Request().Header.ConnectionClose() && clean && !s.Draining(),
		write:      s.cfg.WriteTimeout,
		done:       make(chan struct{}),
	}
}

// hijack takes over the request's connection and runs work on it.
func (cn *Conn) hijack(c *fiber.Ctx, work func(context.Context) error) {
	rc := c.Context() // by the time the connection arrives, c serves another request
	rc.HijackSetNoResponse(true)
	rc.Hijack(func(hijacked net.Conn) {
		over := cn.take(hijacked, work)
		if !cn.persistent {
			<-over // the server closes the connection when this returns
		}
	})
}

// Log returns the logger for errors in streams.
func (s *Conns) Log() *slog.Logger { return s.cfg.Log }

// Open returns the number of open streams.
func (s *Conns) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open) - s.idle
}

// Draining reports whether Drain was called.
func (s *Conns) Draining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// Drain ends all streams, and every later one, with their protocol's request to
// reconnect. It returns when all are closed. When ctx ends it closes the rest and
// returns an error.
func (s *Conns) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	if s.empty == nil {
		s.empty = make(chan struct{})
	}
	empty := s.empty
	if len(s.open) == 0 {
		close(empty)
		s.empty = nil
	}
	for cn := range s.open {
		cn.drain()
	}
	s.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	left := len(s.open)
	for cn := range s.open {
		cn.raw.Close()
	}
	s.mu.Unlock()
	if left == 0 {
		return nil
	}
	return kind.Newf(kind.Deadline, "drain", "", "%d streams did not end in time", left)
}

// add registers cn, and drains it at once if Drain was called before.
func (s *Conns) add(cn *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[cn] = struct{}{}
	if s.draining {
		cn.drain()
	}
}

func (s *Conns) remove(cn *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(cn)
}

func (s *Conns) drop(cn *Conn) {
	if _, ok := s.open[cn]; !ok {
		return
	}
	delete(s.open, cn)
	if cn.reuse {
		s.idle--
	}
	if s.draining && len(s.open) == 0 && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
}
