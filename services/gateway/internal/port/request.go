package port

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// HeaderToken bears a sandbox's traffic token. It is for us, not for the server.
const HeaderToken = "E2b-Traffic-Access-Token"

// request gives the request as the sandbox's server is to get it. Nothing of it
// shares memory with c, but the body, which is nil if there is none.
func request(c *fiber.Ctx, t route.Target) (*http.Request, *upload, error) {
	uri := c.Request().URI()
	path := string(uri.PathOriginal())
	if q := uri.QueryString(); len(q) > 0 {
		path += "?" + string(q)
	}
	u, err := url.ParseRequestURI(path)
	if err != nil {
		return nil, nil, err
	}
	u.Scheme, u.Host = "http", net.JoinHostPort(string(t.Sandbox), strconv.Itoa(t.Port))
	req := &http.Request{
		Method: string(c.Request().Header.Method()), URL: u, Host: string(c.Request().Host()),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: headers(c),
	}
	var body *upload
	if r := c.Context().RequestBodyStream(); r != nil && c.Request().Header.ContentLength() != 0 {
		length := int64(max(-1, c.Request().Header.ContentLength()))
		body = &upload{r: r, conn: c.Context().Conn(), length: length, over: make(chan struct{})}
		req.Body, req.ContentLength = body, length
		body.trail(c, req)
	}
	return req, body, nil
}

// headers are the request's, but those that belong to the client's connection,
// and where it came from.
func headers(c *fiber.Ctx) http.Header {
	h := make(http.Header)
	for k, v := range c.Request().Header.All() {
		h.Add(string(k), string(v))
	}
	upgrade := ""
	for _, list := range h.Values("Connection") {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); strings.EqualFold(name, "upgrade") {
				upgrade = h.Get("Upgrade")
			}
			if name != "" {
				h.Del(name)
			}
		}
	}
	for _, name := range [...]string{"Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Authorization",
		"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", HeaderToken} {
		h.Del(name)
	}
	if upgrade != "" {
		h.Set("Connection", "Upgrade")
		h.Set("Upgrade", upgrade)
	}
	if h.Get("User-Agent") == "" {
		h["User-Agent"] = nil // or the transport names itself
	}
	if ip, _, err := net.SplitHostPort(c.Context().RemoteAddr().String()); err == nil {
		h.Set("X-Forwarded-For", strings.Join(append(h.Values("X-Forwarded-For"), ip), ", "))
	}
	if h.Get("X-Forwarded-Host") == "" {
		h.Set("X-Forwarded-Host", string(c.Request().Host()))
	}
	if h.Get("X-Forwarded-Proto") == "" {
		h.Set("X-Forwarded-Proto", "http")
	}
	return h
}

// upload is a request's body, which belongs to the server that reads the
// client's connection, and may be read only until release.
type upload struct {
	r      io.Reader
	conn   net.Conn           // that r reads
	length int64              // that was told; -1: none
	failed context.CancelFunc // called when the client's connection fails
	over   chan struct{}      // closed when it is not read any more
	ends   func()             // called when all of it was read; may be nil
	once   sync.Once

	mu    sync.Mutex // held while it is read
	gone  bool       // released
	ended bool       // nothing is left of it
	err   error      // of the client's connection

	n atomic.Int64 // bytes read
}

// trail has the trailers that the request announces passed on when they have come.
func (u *upload) trail(c *fiber.Ctx, req *http.Request) {
	head := &c.Request().Header
	for _, name := range head.PeekTrailerKeys() {
		if req.Trailer == nil {
			req.Trailer = make(http.Header)
		}
		req.Trailer[http.CanonicalHeaderKey(string(name))] = nil
		req.Header.Del(string(name))
	}
	if req.Trailer == nil {
		return
	}
	u.ends = func() { // the server that reads the connection has put them into the head
		for name := range req.Trailer {
			for _, v := range head.PeekAll(name) {
				req.Trailer.Add(name, string(v))
			}
		}
	}
}

// stalled is how long a body may stand still whose request was answered already.
const stalled = 10 * time.Second

var errReleased = errors.New("the request's body is not read any more")

// Read reads what comes from the client.
func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.gone {
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
		u.err = err
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

// release ends all reading, if the request was answered when the body was read,
// is not wanted, or stands still. clean reports whether nothing is left of it; err
// is what is wrong with the client's connection.
func (u *upload) release(answered bool) (clean bool, err error) {
	if answered {
		u.await()
	}
	if !u.mu.TryLock() { // it is being read, and the client may say nothing for long
		u.conn.SetReadDeadline(time.Unix(1, 0))   //nolint:errcheck // then it ends with the client's next word
		defer u.conn.SetReadDeadline(time.Time{}) //nolint:errcheck // the next read tells
		u.mu.Lock()
		u.err = nil
	}
	defer u.mu.Unlock()
	u.gone = true
	return u.ended, u.err
}

func (u *upload) await() {
	tick := time.NewTicker(stalled)
	defer tick.Stop()
	for last := int64(-1); ; {
		select {
		case <-u.over:
			return
		case <-tick.C:
			n := u.n.Load()
			if n == last {
				return
			}
			last = n
		}
	}
}
