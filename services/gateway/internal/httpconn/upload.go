package httpconn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
)

// Upload is a request's body that is passed on while it arrives. It belongs to the server
// that reads the client's connection, and may be read only until Drain returns.
type Upload struct {
	r      io.Reader
	conn   net.Conn           // connection that r reads
	length int64              // declared length; -1: unknown
	failed context.CancelFunc // called when the client's connection fails
	done   chan struct{}      // closed when it is no longer read
	onEnd  func()             // called at its end; may be nil
	once   sync.Once

	mu     sync.Mutex // held during a read
	closed bool       // Read may no longer be called
	ended  bool       // the end was reached
	err    error      // error of the client's connection

	n atomic.Int64 // bytes read
}

// NewUpload returns the body of c's request, which must be a stream; length is its declared
// length, or -1. Until OnFailure is called, a failure of the client's connection calls nothing.
func NewUpload(c *fiber.Ctx, length int64) *Upload {
	return &Upload{r: c.Context().RequestBodyStream(), conn: c.Context().Conn(), length: length, failed: func() {}, done: make(chan struct{})}
}

// OnFailure sets the function that is called when the client's connection fails. It must be
// called before the body is read.
func (u *Upload) OnFailure(failed context.CancelFunc) { u.failed = failed }

// small is the size up to which a body is read before its request is passed on: then the
// connection to the server can be reused.
const small = 64 << 10

// Large reports whether the body is streamed.
func (u *Upload) Large() bool { return u.length < 0 || u.length > small }

// ReadAll reads the whole body for req, which can then be sent twice.
func (u *Upload) ReadAll(c *fiber.Ctx, req *http.Request) error {
	b := make([]byte, u.length)
	if _, err := io.ReadFull(u, b); err != nil {
		c.Context().SetConnectionClose()
		return ErrUnread
	}
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
	req.Body, _ = req.GetBody()
	return nil
}

// maxTrailers is the maximum number of announced trailers: each is searched for in all headers.
const maxTrailers = 64

// Trail passes on the trailers that the request announces once they have arrived.
func (u *Upload) Trail(c *fiber.Ctx, req *http.Request) error {
	head := &c.Request().Header
	names := head.PeekTrailerKeys()
	if len(names) > maxTrailers {
		return fmt.Errorf("%d trailers, more than %d", len(names), maxTrailers)
	}
	for _, name := range names {
		if req.Trailer == nil {
			req.Trailer = make(http.Header)
		}
		req.Trailer[http.CanonicalHeaderKey(string(name))] = nil
		req.Header.Del(string(name))
	}
	if req.Trailer == nil {
		return nil
	}
	u.onEnd = func() { // the HTTP server has put them into the head
		for name := range req.Trailer {
			for _, v := range head.PeekAll(name) {
				req.Trailer.Add(name, string(v))
			}
		}
	}
	return nil
}

const (
	lingerTimeout = 30 * time.Second // how long a body is read after the response
	endTimeout    = time.Second      // limit for the reader to notice the end of the body
	watchInterval = time.Second      // interval of checks whether the client is still connected
)

var errReleased = errors.New("the request's body is no longer read")

// ErrUnread is the answer to a request whose body could not be read.
var ErrUnread = fiber.NewError(http.StatusBadRequest, "cannot read the request body")

// Read reads what the client sends.
func (u *Upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.ended:
		return 0, io.EOF
	case u.closed:
		return 0, errReleased
	}
	n, err := u.r.Read(p)
	u.n.Add(int64(n))
	if errors.Is(err, io.EOF) && u.cut() {
		err = io.ErrUnexpectedEOF
	}
	switch {
	case errors.Is(err, io.EOF):
		if u.ended = true; u.onEnd != nil {
			u.onEnd()
		}
		u.finish()
	case err != nil:
		u.err, u.closed = err, true
		u.finish()
		u.failed()
	}
	return n, err
}

// cut reports whether the body ended because the client disconnected ([Cut]).
func (u *Upload) cut() bool {
	if u.length >= 0 {
		return u.n.Load() < u.length
	}
	return LeftOn(u.conn)
}

// Close declares that the rest is not needed.
func (u *Upload) Close() error {
	u.finish()
	return nil
}

func (u *Upload) finish() { u.once.Do(func() { close(u.done) }) }

// State reports whether the body was read completely, and the error of the client's
// connection, as far as is known without waiting for the client.
func (u *Upload) State() (clean bool, err error) {
	if u.length < 0 || u.n.Load() < u.length {
		select {
		case <-u.done:
		default:
			return false, nil // still arriving
		}
	}
	select { // all of it was read, and the reader is about to notice the end
	case <-u.done:
	case <-time.After(endTimeout):
		return false, nil // unless its last bytes are for a server that has responded and does not read them
	}
	if !u.mu.TryLock() {
		return false, nil // no longer needed, and a read was in progress at that time
	}
	defer u.mu.Unlock()
	return u.ended, u.err
}

// Release takes the body from its reader. whole reports whether the rest can be read: it
// cannot if a read was interrupted within a chunk header.
func (u *Upload) Release() (whole bool, err error) {
	whole = u.mu.TryLock()
	if !whole { // a read is in progress, and the client may send nothing for long
		u.conn.SetReadDeadline(past)
		defer u.conn.SetReadDeadline(time.Time{})
		u.mu.Lock()
		u.err = nil
		whole = u.length >= 0
	}
	defer u.mu.Unlock()
	u.closed = true
	return whole, u.err
}

// Watch calls gone if the client disconnects before stop: while the server accepts no data,
// no read of the body detects that.
func (u *Upload) Watch(gone func()) (stop func()) {
	over := make(chan struct{})
	go func() {
		tick := time.NewTicker(watchInterval)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				if Gone(u.conn) {
					gone()
					return
				}
			}
		}
	}()
	return func() { close(over) }
}

// Drain waits until the body has been read completely, and discards what its reader did
// not need. After the response, when answered is closed, the client has a while to stop
// sending: if its connection were closed while it sends, its system might report an error
// instead of the response.
func (u *Upload) Drain(answered <-chan struct{}) {
	left := make(chan struct{})
	defer close(left)
	go func() {
		select {
		case <-left:
		case <-answered:
			u.conn.SetReadDeadline(time.Now().Add(lingerTimeout))
		}
	}()
	<-u.done
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	if u.ended || u.err != nil {
		return
	}
	if _, err := io.Copy(io.Discard, u.r); err != nil {
		u.failed()
	}
}
