package stream

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
)

// Config says how streams are held. The zero value of a field is its default.
type Config struct {
	// WriteTimeout is how long a reader may take nothing of what is sent before
	// it counts as stuck and is dropped. Default 30 s.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection whose stream has ended may wait for
	// its next request. Default 2 min.
	IdleTimeout time.Duration
	// Room is how many bytes all streams and requests may hold together, beyond OwnRoom
	// each. Default 256 MiB.
	Room int
	Log  *slog.Logger
}

// Streams is the registry of open streams. Its methods may be called
// concurrently.
type Streams struct {
	cfg   Config
	rooms rooms

	mu       sync.Mutex
	open     map[*conn]struct{} // those that are streaming or wait for their next request
	kept     int                // of open: those that wait for their next request
	draining bool
	empty    chan struct{} // made by Drain, closed when open is empty
}

// The causes that end a stream from outside.
var (
	errLeft  = kind.New(kind.Canceled, "stream", "", "the client left")
	errDrain = kind.New(kind.Unavailable, "stream", "", "the gateway is going away; come back with your place")
	errLate  = kind.New(kind.Deadline, "stream", "", "the request's time ran out")
)

// New gives a registry without streams.
func New(cfg Config) *Streams {
	if cfg.WriteTimeout <= 0 {
		cfg.WriteTimeout = 30 * time.Second
	}
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = 2 * time.Minute
	}
	if cfg.Room <= 0 {
		cfg.Room = sharedRoom
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Streams{cfg: cfg, rooms: rooms{free: cfg.Room, taken: make(map[string]int)}, open: make(map[*conn]struct{})}
}

// maxUnread is how much of a request's body is read away so that its
// connection can be used again.
const maxUnread = 256 << 10

// Serve takes the connection over and returns at once; the stream goes on after
// the handler has returned. It ends when the record does, when the client
// leaves, when head.Timeout passes, or in Drain. src and enc belong to the
// stream from here on, whatever happens; src is closed at its end.
func (s *Streams) Serve(c *fiber.Ctx, head Head, src Source, enc Encoder) error {
	cn := s.conn(c, DiscardBody(c))
	if cn.limit = head.Timeout; head.WriteTimeout > 0 {
		cn.write = head.WriteTimeout
	}
	cn.head = head.appendTo(make([]byte, 0, 512), c, cn.chunked, cn.keep)
	cn.hijack(c, func(ctx context.Context) error {
		defer src.Close()
		if head.Room != nil {
			defer head.Room.Shrink(0)
		}
		return Copy(ctx, cn, src, enc)
	})
	return nil
}

// conn makes what holds the connection of a request, of whose body nothing is
// left if clean.
func (s *Streams) conn(c *fiber.Ctx, clean bool) *conn {
	server := c.App().Server()
	chunked := c.Request().Header.IsHTTP11()
	_, lasting := c.Context().Conn().(*held)
	return &conn{
		streams: s,
		server:  server,
		chunked: chunked,
		lasting: lasting,
		keep:    chunked && lasting && !c.Request().Header.ConnectionClose() && clean && !s.Draining(),
		write:   s.cfg.WriteTimeout,
		done:    make(chan struct{}),
	}
}

// hijack takes the request's connection over for work.
func (cn *conn) hijack(c *fiber.Ctx, work func(context.Context) error) {
	rc := c.Context() // c is the next request's when the connection comes
	rc.HijackSetNoResponse(true)
	rc.Hijack(func(hijacked net.Conn) {
		over := cn.take(hijacked, work)
		if !cn.lasting {
			<-over // the server closes the connection when this returns
		}
	})
}

// DiscardBody reads away what is left of the request's body, and says whether
// nothing of it is left: what stays in the connection would be taken for the
// next request, so that the connection must be closed then.
func DiscardBody(c *fiber.Ctx) bool {
	whole, err := Discard(c, maxUnread-1)
	return whole && err == nil
}

// Discard is DiscardBody for a body of so many bytes at most; an error says that it cannot
// be read.
func Discard(c *fiber.Ctx, most int64) (whole bool, err error) {
	body := c.Context().RequestBodyStream()
	if body == nil {
		return true, nil
	}
	if _, err = io.CopyN(io.Discard, body, most+1); errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// Log is where what goes wrong in streams is said.
func (s *Streams) Log() *slog.Logger { return s.cfg.Log }

// Open is how many streams there are.
func (s *Streams) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open) - s.kept
}

// Draining reports whether Drain was called.
func (s *Streams) Draining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// Drain ends all streams with their protocol's "come back", and those that
// start later at once. It returns when all are closed, or closes what is left
// when ctx ends, and says so.
func (s *Streams) Drain(ctx context.Context) error {
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
		cn.raw.Close() //nolint:errcheck // it is given up
	}
	s.mu.Unlock()
	if left == 0 {
		return nil
	}
	return kind.Newf(kind.Deadline, "drain", "", "%d streams did not end in time", left)
}

// add registers cn, which is told at once if it comes too late.
func (s *Streams) add(cn *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[cn] = struct{}{}
	if s.draining {
		cn.drain()
	}
}

func (s *Streams) remove(cn *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(cn)
}

func (s *Streams) drop(cn *conn) {
	if _, ok := s.open[cn]; !ok {
		return
	}
	delete(s.open, cn)
	if cn.reuse {
		s.kept--
	}
	if s.draining && len(s.open) == 0 && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
}
