package stream

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/httpconn"
)

// Config configures the streams. A zero field means its default.
type Config struct {
	// WriteTimeout is how long a client may read nothing before it is
	// disconnected. Default 30 s.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection may wait for its next request after
	// its stream has ended. Default 2 min.
	IdleTimeout time.Duration
	// Budget is the number of bytes that all streams and requests may hold
	// together, beyond BaseBudget each. Default 256 MiB.
	Budget int
	Log    *slog.Logger
}

// Streams is the registry of open streams. Its methods may be called
// concurrently.
type Streams struct {
	*httpconn.Conns
	pool budgetPool
}

// New returns a registry without streams.
func New(cfg Config) *Streams {
	cfg.Budget = cmp.Or(max(cfg.Budget, 0), defaultBudget)
	return &Streams{
		Conns: httpconn.New(httpconn.Config{WriteTimeout: cfg.WriteTimeout, IdleTimeout: cfg.IdleTimeout, Log: cfg.Log}),
		pool:  budgetPool{free: cfg.Budget, used: make(map[string]int)},
	}
}

// Head is the HTTP head of a stream.
type Head struct {
	Status       int // default 200
	ContentType  string
	Headers      [][2]string   // in addition to those that middleware set on the response
	WriteTimeout time.Duration // how long a client may read nothing; default Config.WriteTimeout
	Timeout      time.Duration // lifetime of the stream, which then ends with kind.Deadline; 0: unlimited
	Budget       *Budget       // memory of its encoder; may be nil
}

// Serve takes over the connection and returns at once; the stream continues
// after the handler has returned. It ends with the record, when the client
// disconnects, after head.Timeout, or in Drain. Serve takes ownership of src and
// enc even if it fails, and closes src at the end.
func (s *Streams) Serve(c *fiber.Ctx, head Head, src Source, enc Encoder) error {
	s.Take(c, httpconn.Head{
		Status: head.Status, ContentType: head.ContentType, Headers: head.Headers, WriteTimeout: head.WriteTimeout, Timeout: head.Timeout,
	}, func(ctx context.Context, w *httpconn.Conn) error {
		defer src.Close()
		if head.Budget != nil {
			defer head.Budget.Shrink(0)
		}
		return Copy(ctx, w, src, enc)
	})
	return nil
}

// Answer is like [httpconn.Conns.Answer]. The body counts against budget until it is sent; if
// it does not fit, the error is Unavailable.
func (s *Streams) Answer(c *fiber.Ctx, body []byte, budget *Budget, report func(whole bool)) error {
	if !budget.Grow(len(body)) {
		return ErrOverBudget
	}
	s.Conns.Answer(c, body, func() { budget.Shrink(0) }, report)
	return nil
}
