package stream

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/millrace/millrace/services/gateway/internal/recovery"
)

// conn is one connection with one stream on it. Two goroutines hold it: run
// writes the stream, watch reads what the client says meanwhile (nothing, or
// that it left) and, after a stream that ended in order, its next request.
type conn struct {
	streams *Streams
	server  *fasthttp.Server
	raw     net.Conn
	early   []byte // of the next request, read before the stream began
	head    []byte // until it is sent
	chunked bool   // HTTP/1.1
	lasting bool   // the connection is Listen's: it outlives the request
	keep    bool   // the connection may serve another request after the stream
	write   time.Duration
	limit   time.Duration
	relay   bool // the answer is another server's: a drain lets it end

	refused func() // called when the client's machine throws away what it was sent, before another request; may be nil

	cancel context.CancelCauseFunc
	done   chan struct{} // closed when run is over
	reuse  bool          // guarded by streams.mu: the stream ended in order and the connection waits
}

const (
	readAhead = 2 << 10   // of a next request is read at once while the stream still runs,
	mostAhead = 128 << 10 // and of all that follow: who sends more does not hear the end of the stream
)

// take begins the stream. The channel it returns is closed when the stream is
// over and nothing uses the connection any more.
func (cn *conn) take(hijacked net.Conn, work func(context.Context) error) <-chan struct{} {
	over := make(chan struct{})
	// The stream outlives the request that asked for it: its lifetime begins here.
	ctx, cancel := context.WithCancelCause(context.Background())
	cn.cancel = cancel
	cn.raw, cn.early = unwrap(hijacked)
	cn.streams.add(cn)
	go func() {
		defer close(over)
		cn.watch()
	}()
	go cn.run(ctx, work)
	return over
}

// unwrap gives the connection below the server's, and what the server had read
// from it already: a past deadline lets reads end where its buffer does.
func unwrap(hijacked net.Conn) (net.Conn, []byte) {
	raw := hijacked
	if u, ok := hijacked.(interface{ UnsafeConn() net.Conn }); ok {
		raw = u.UnsafeConn()
	}
	if h, ok := raw.(*held); ok {
		h.taken.Store(true)
	}
	raw.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // the read tells
	var early []byte
	for {
		var b [512]byte
		n, err := hijacked.Read(b[:])
		early = append(early, b[:n]...)
		if err != nil || n == 0 {
			break
		}
	}
	raw.SetReadDeadline(time.Time{}) //nolint:errcheck // the next read tells
	return below(raw), early
}

// run has work write the stream.
func (cn *conn) run(ctx context.Context, work func(context.Context) error) {
	inOrder := false
	defer func() {
		cn.cancel(errLeft)
		cn.finish(inOrder)
	}()
	if cn.limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, cn.limit, errLate)
		defer stop()
	}
	err := recovery.Do(cn.streams.cfg.Log, "stream", func() error { return work(ctx) })
	inOrder = err == nil
	if errors.Is(err, os.ErrDeadlineExceeded) {
		cn.streams.cfg.Log.Info("stream dropped: its reader is stuck", "client", cn.raw.RemoteAddr())
	} else if err != nil {
		cn.streams.cfg.Log.Log(ctx, slog.LevelDebug, "stream ended early", "err", err)
	}
}

// finish closes the connection or leaves it to watch for the next request.
func (cn *conn) finish(inOrder bool) {
	s := cn.streams
	s.mu.Lock()
	defer s.mu.Unlock()
	cn.reuse = inOrder && cn.keep && !s.draining
	if cn.reuse {
		s.kept++
		cn.raw.SetWriteDeadline(time.Time{})                      //nolint:errcheck // watch's read tells
		cn.raw.SetReadDeadline(time.Now().Add(s.cfg.IdleTimeout)) //nolint:errcheck // watch's read tells
	} else {
		cn.raw.Close() //nolint:errcheck // nothing more is to be said
		s.drop(cn)
	}
	close(cn.done)
}

// drain ends the stream; the caller holds streams.mu.
func (cn *conn) drain() {
	if cn.reuse {
		cn.raw.Close() //nolint:errcheck // nothing was asked of it
		return
	}
	if !cn.relay {
		cn.cancel(errDrain)
	}
}

// watch reads until the client says something. A client that closes its sending
// side has left: it cannot be told from one that died.
func (cn *conn) watch() {
	next, reset := cn.early, false
	if len(next) == 0 {
		buf := make([]byte, readAhead)
		n, err := cn.raw.Read(buf)
		if next = buf[:n]; err != nil && n == 0 {
			reset = errors.Is(err, syscall.ECONNRESET)
			cn.cancel(errLeft)
		}
	}
	if len(next) > 0 {
		next = cn.behind(next)
	}
	<-cn.done
	if reset && cn.refused != nil {
		cn.refused()
	}
	if !cn.reuse {
		return
	}
	cn.streams.remove(cn)
	if len(next) == 0 {
		cn.raw.Close() //nolint:errcheck // it left, or its time to ask ran out
		return
	}
	cn.raw.SetReadDeadline(time.Time{})                  //nolint:errcheck // the server's read tells
	cn.server.ServeConn(&held{Conn: cn.raw, head: next}) //nolint:errcheck // the server has answered the client
}

// behind reads on behind the first bytes of a next request until the stream is over: a
// client that left would not be noticed else, where nothing is written.
func (cn *conn) behind(next []byte) []byte {
	told := make(chan struct{})
	go func() {
		defer close(told)
		<-cn.done
		cn.raw.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // the read tells
	}()
	buf := make([]byte, readAhead)
	for {
		n, err := cn.raw.Read(buf)
		next = append(next, buf[:n]...)
		if err != nil || len(next) > mostAhead {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				cn.cancel(errLeft)
			}
			<-told
			return next
		}
	}
}

// Flush sends a chunk (Writer).
func (cn *conn) Flush(buf []byte) error { return cn.send(buf, false) }

// End sends the last chunk and the end of the body (Writer).
func (cn *conn) End(buf []byte) error { return cn.send(buf, true) }

func (cn *conn) send(buf []byte, last bool) error {
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

// deliver writes out. A reader has the write timeout for each part that it
// takes: one that is slow is waited for, one that takes nothing is not.
func (cn *conn) deliver(out []byte) error {
	for {
		if err := cn.raw.SetWriteDeadline(time.Now().Add(cn.write)); err != nil {
			return err
		}
		n, err := cn.raw.Write(out)
		if err == nil || n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		out = out[n:]
	}
}
