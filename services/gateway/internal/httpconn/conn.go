package httpconn

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/millrace/millrace/services/gateway/internal/recovery"
)

// Conn is a connection with one stream. Two goroutines use it: run writes the
// stream; watch reads what the client sends meanwhile (nothing, or its close) and,
// after a stream that ended in order, its next request.
type Conn struct {
	conns      *Conns
	server     *fasthttp.Server
	raw        net.Conn
	ahead      []byte // start of the next request, read before the stream began
	head       []byte // response head; nil once sent
	chunked    bool   // HTTP/1.1
	persistent bool   // accepted by Listen, so that it can outlive the request
	keep       bool   // the connection may serve another request after the stream
	write      time.Duration
	limit      time.Duration
	relay      bool // the response is another server's: a drain lets it finish

	lifetime context.Context //nolint:containedctx // the stream ends with it; nil: unlimited

	onReset func() // called when the client's machine discards sent bytes, before another request; may be nil

	cancel context.CancelCauseFunc
	done   chan struct{} // closed when run ends
	reuse  bool          // guarded by conns.mu: the stream ended in order and the connection waits for a request
}

const (
	firstRead    = 2 << 10   // first read of a next request while the stream runs
	maxPipelined = 128 << 10 // limit of all such reads: a client that sends more is disconnected
)

// take starts the stream. The returned channel is closed when the stream has ended
// and nothing uses the connection any more.
func (cn *Conn) take(hijacked net.Conn, work func(context.Context) error) <-chan struct{} {
	over := make(chan struct{})
	// The stream outlives its request: its lifetime begins here.
	ctx, cancel := context.WithCancelCause(context.Background())
	cn.cancel = cancel
	cn.raw, cn.ahead = unwrap(hijacked)
	cn.conns.add(cn)
	go func() {
		defer close(over)
		cn.watch()
	}()
	go cn.run(ctx, work)
	return over
}

// unwrap returns the connection below the server's and the bytes that the server has
// already read from it: a deadline in the past ends the reads at the end of its buffer.
func unwrap(hijacked net.Conn) (net.Conn, []byte) {
	raw := hijacked
	if u, ok := hijacked.(interface{ UnsafeConn() net.Conn }); ok {
		raw = u.UnsafeConn()
	}
	if h := prefixed(raw); h != nil {
		h.taken.Store(true)
	}
	raw.SetReadDeadline(past)
	var early []byte
	for {
		var b [512]byte
		n, err := hijacked.Read(b[:])
		early = append(early, b[:n]...)
		if err != nil || n == 0 {
			break
		}
	}
	raw.SetReadDeadline(time.Time{})
	return newSocket(underlying(raw)), early
}

// run writes the stream by calling work.
func (cn *Conn) run(ctx context.Context, work func(context.Context) error) {
	inOrder := false
	defer func() {
		cn.cancel(errLeft)
		cn.finish(inOrder)
	}()
	if l := cn.lifetime; l != nil {
		defer context.AfterFunc(l, func() { cn.cancel(context.Cause(l)) })()
	}
	if cn.limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, cn.limit, errTimeout)
		defer stop()
	}
	err := recovery.Do(cn.conns.cfg.Log, "stream", func() error { return work(ctx) })
	inOrder = err == nil
	if errors.Is(err, os.ErrDeadlineExceeded) {
		cn.conns.cfg.Log.Info("disconnect stalled client", "client", cn.raw.RemoteAddr())
	} else if err != nil {
		cn.conns.cfg.Log.Log(ctx, slog.LevelDebug, "stream failed", "err", err)
	}
}

// finish closes the connection, or leaves it to watch for the next request.
func (cn *Conn) finish(inOrder bool) {
	s := cn.conns
	s.mu.Lock()
	defer s.mu.Unlock()
	cn.reuse = inOrder && cn.keep && !s.draining
	if cn.reuse {
		s.idle++
		cn.raw.SetWriteDeadline(time.Time{})
		cn.raw.SetReadDeadline(time.Now().Add(s.cfg.IdleTimeout))
	} else {
		cn.raw.Close()
		s.drop(cn)
	}
	close(cn.done)
}

// drain ends the stream; the caller holds conns.mu.
func (cn *Conn) drain() {
	if cn.reuse {
		cn.raw.Close()
		return
	}
	if !cn.relay {
		cn.cancel(errDrain)
	}
}

// watch reads until the client sends something or disconnects. A client that closes
// its sending side counts as gone: it cannot be distinguished from a dead one.
func (cn *Conn) watch() {
	next, reset := cn.ahead, false
	if len(next) == 0 {
		buf := make([]byte, firstRead)
		n, err := cn.raw.Read(buf)
		if next = buf[:n]; err != nil && n == 0 {
			cn.cancel(errLeft)
			reset = wasReset(cn.raw, err)
		}
	}
	if len(next) > 0 {
		next = cn.readPipelined(next)
	}
	<-cn.done
	if reset && cn.onReset != nil {
		cn.onReset()
	}
	if !cn.reuse {
		return
	}
	cn.conns.remove(cn)
	if len(next) == 0 {
		cn.raw.Close()
		return
	}
	cn.raw.SetReadDeadline(time.Time{})
	cn.server.ServeConn(lasting(cn.raw, next)) //nolint:errcheck // the server has sent the error
}

// readPipelined reads on after the first bytes of a next request until the stream ends:
// otherwise a disconnect would go unnoticed while nothing is written.
func (cn *Conn) readPipelined(next []byte) []byte {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-cn.done
		cn.raw.SetReadDeadline(past)
	}()
	buf := make([]byte, firstRead)
	for {
		n, err := cn.raw.Read(buf)
		next = append(next, buf[:n]...)
		if err != nil || len(next) > maxPipelined {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				cn.cancel(errLeft)
			}
			<-stopped
			return next
		}
	}
}

// Headroom is the scratch space that a Conn needs before the payload, for the size of an
// HTTP chunk.
const Headroom = 16

// Flush sends all of buf[Headroom:] at once, as a chunk.
func (cn *Conn) Flush(buf []byte) error { return cn.send(buf, false) }

// End sends the last chunk and the end of the body.
func (cn *Conn) End(buf []byte) error { return cn.send(buf, true) }

func (cn *Conn) send(buf []byte, last bool) error {
	from := Headroom
	if n := len(buf) - Headroom; cn.chunked && n > 0 {
		var size [Headroom]byte
		line := append(strconv.AppendUint(size[:0], uint64(n), 16), "\r\n"...)
		from -= copy(buf[Headroom-len(line):], line)
		buf = append(buf, "\r\n"...)
	}
	if cn.chunked && last {
		buf = append(buf, "0\r\n\r\n"...)
	}
	out := buf[from:]
	if cn.head != nil {
		out = append(cn.head, out...)
		cn.head = nil
	}
	if len(out) == 0 {
		return nil
	}
	return cn.deliver(out)
}

// deliver writes out. The write timeout restarts whenever the client has read something.
func (cn *Conn) deliver(out []byte) error {
	if err := cn.raw.SetWriteDeadline(time.Now().Add(cn.write)); err != nil {
		return err
	}
	_, err := cn.raw.Write(out)
	return err
}
