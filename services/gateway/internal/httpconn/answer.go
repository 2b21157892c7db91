package httpconn

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"
)

// ackTimeout is how long the client's machine may take to acknowledge a response.
const ackTimeout = 5 * time.Second

// Answer sends body as the response, with the headers and status that c has, however slowly
// the client reads, and then calls done. A non-nil report is called with whether the client's
// machine has acknowledged all of it, before the connection serves another request. It gets
// false if that is uncertain: the client closed its side before the response was sent, or its
// machine does not acknowledge. It is called again with false if that machine discards the
// response later because no process read it.
func (s *Conns) Answer(c *fiber.Ctx, body []byte, done func(), report func(whole bool)) {
	res := response(c, body)
	cn := s.conn(c, DiscardBody(c))
	cn.relay = true
	if report != nil {
		cn.onReset = func() { report(false) }
	}
	cn.hijack(c, func(context.Context) error {
		defer done()
		if report != nil && peerClosed(cn.raw) {
			report(false)
			return errLeft
		}
		err := cn.pass(res, false)
		if report != nil {
			report(err == nil && acknowledged(cn.raw, ackTimeout))
		}
		return err
	})
}

// response returns body, with the headers and status that c has, as an http.Response.
func response(c *fiber.Ctx, body []byte) *http.Response {
	res := &http.Response{
		StatusCode: c.Response().StatusCode(), Header: make(http.Header),
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}
	for k, v := range c.Response().Header.All() {
		name := http.CanonicalHeaderKey(string(k))
		res.Header[name] = append(res.Header[name], string(v))
	}
	return res
}

// acknowledged waits until the client's machine has acknowledged all that was written, for
// at most timeout, and reports whether it has.
func acknowledged(conn net.Conn, timeout time.Duration) bool {
	late := time.NewTimer(timeout)
	defer late.Stop()
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		left, err := unsent(conn)
		if err != nil || left == 0 {
			return err == nil
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-late.C:
			t.Stop()
			return false
		}
	}
}
