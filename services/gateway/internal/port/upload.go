package port

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

	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// upload is a request's body, which belongs to the server that reads the
// client's connection, and may be read only until outlast returns.
type upload struct {
	r      io.Reader
	conn   net.Conn           // that r reads
	length int64              // that was told; -1: none
	failed context.CancelFunc // called when the client's connection fails
	over   chan struct{}      // closed when it is not read any more
	ends   func()             // called when all of it was read; may be nil
	once   sync.Once

	mu    sync.Mutex // held while it is read
	gone  bool       // it is not for Read any more
	ended bool       // nothing is left of it
	err   error      // of the client's connection

	n atomic.Int64 // bytes read
}

// small is the size up to which a body is read before its request is passed on: the
// connection to the server is then kept for the next one.
const small = 64 << 10

// large reports whether the body is passed on while it comes.
func (u *upload) large() bool { return u.length < 0 || u.length > small }

// whole reads the body for req, which can then be sent twice.
func (u *upload) whole(c *fiber.Ctx, req *http.Request) error {
	b := make([]byte, u.length)
	if _, err := io.ReadFull(u, b); err != nil {
		c.Context().SetConnectionClose()
		return errUnread
	}
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
	req.Body, _ = req.GetBody() //nolint:errcheck // it never fails
	return nil
}

// mostTrailers is how many a request may announce: each is looked for among all headers.
const mostTrailers = 64

// trail has the trailers that the request announces passed on when they have come.
func (u *upload) trail(c *fiber.Ctx, req *http.Request) error {
	head := &c.Request().Header
	names := head.PeekTrailerKeys()
	if len(names) > mostTrailers {
		return fmt.Errorf("%d trailers, more than %d", len(names), mostTrailers)
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
	u.ends = func() { // the server that reads the connection has put them into the head
		for name := range req.Trailer {
			for _, v := range head.PeekAll(name) {
				req.Trailer.Add(name, string(v))
			}
		}
	}
	return nil
}

const (
	stalled = 10 * time.Second // how long a body may take whose request cannot be passed on
	linger  = 30 * time.Second // how long one may go on whose request was answered
	seen    = time.Second      // within which who has read all of it sees that
	look    = time.Second      // how often it is looked whether who sends it is still there
)

var (
	errReleased = errors.New("the request's body is not read any more")
	errUnread   = fiber.NewError(http.StatusBadRequest, "the body cannot be read")
)

// Read reads what comes from the client.
func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.ended:
		return 0, io.EOF
	case u.gone:
		return 0, errReleased
	}
	n, err := u.r.Read(p)
	u.n.Add(int64(n))
	if errors.Is(err, io.EOF) && u.cut() {
		err = io.ErrUnexpectedEOF
	}
	switch {
	case errors.Is(err, io.EOF):
		if u.ended = true; u.ends != nil {
			u.ends()
		}
		u.finish()
	case err != nil:
		u.err, u.gone = err, true
		u.finish()
		u.failed()
	}
	return n, err
}

// cut reports whether the body ended because the client left (stream.Cut).
func (u *upload) cut() bool {
	if u.length >= 0 {
		return u.n.Load() < u.length
	}
	return stream.LeftOn(u.conn)
}

// Close says that no more is wanted.
func (u *upload) Close() error {
	u.finish()
	return nil
}

func (u *upload) finish() { u.once.Do(func() { close(u.over) }) }

// state tells whether nothing is left of the body, and what is wrong with the
// client's connection, as far as is known without waiting for the client.
func (u *upload) state() (clean bool, err error) {
	if u.length < 0 || u.n.Load() < u.length {
		select {
		case <-u.over:
		default:
			return false, nil // it is still coming
		}
	}
	select { // all of it was read, and whoever reads it is about to see that
	case <-u.over:
	case <-time.After(seen):
		return false, nil // unless its last bytes are for a server that answered and does not read them
	}
	if !u.mu.TryLock() {
		return false, nil // it is not wanted, and was being read when that was said
	}
	defer u.mu.Unlock()
	return u.ended, u.err
}

// release takes the body from whoever reads it. whole reports whether what is left
// can be read: not where the reading was broken off between two bytes that belong
// together.
func (u *upload) release() (whole bool, err error) {
	whole = u.mu.TryLock()
	if !whole { // it is being read, and the client may say nothing for long
		u.conn.SetReadDeadline(time.Unix(1, 0))   //nolint:errcheck // then it ends with the client's next word
		defer u.conn.SetReadDeadline(time.Time{}) //nolint:errcheck // the next read tells
		u.mu.Lock()
		u.err = nil
		whole = u.length >= 0
	}
	defer u.mu.Unlock()
	u.gone = true
	return whole, u.err
}

// while calls gone when the client leaves before stop: nobody reads of it as long as the server
// takes nothing.
func (u *upload) while(gone func()) (stop func()) {
	over := make(chan struct{})
	go func() {
		tick := time.NewTicker(look)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				if stream.Gone(u.conn) {
					gone()
					return
				}
			}
		}
	}()
	return func() { close(over) }
}

// outlast waits until nothing is left of the body, reading away what is not wanted
// by who reads it. When the request has been answered, which closes answered, the
// client has a while to stop sending: whom its system tells of a connection that was
// closed meanwhile, it does not show the answer.
func (u *upload) outlast(answered <-chan struct{}) {
	left := make(chan struct{})
	defer close(left)
	go func() {
		select {
		case <-left:
		case <-answered:
			u.conn.SetReadDeadline(time.Now().Add(linger)) //nolint:errcheck // the next read tells
		}
	}()
	<-u.over
	u.mu.Lock()
	defer u.mu.Unlock()
	u.gone = true
	if u.ended || u.err != nil {
		return
	}
	if _, err := io.Copy(io.Discard, u.r); err != nil {
		u.failed()
	}
}
