package stream

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"
)

// arrival is how long the client's machine may take to say that it has an answer.
const arrival = 5 * time.Second

// Answer answers the request with body and the headers and status that c has, however
// slowly its client reads: the body takes room until then, and where there is none the
// error is Unavailable. Unless told is nil it is then told whether the client's machine
// has all of it, before the connection serves another request. What is not sure counts as
// not: the client had closed its side before the answer was sent, or its machine does not
// say. It is told once more, that it was not, if that machine threw it away in the end
// because nobody read it.
func (s *Streams) Answer(c *fiber.Ctx, body []byte, room *Room, told func(whole bool)) error {
	if !room.Grow(len(body)) {
		return ErrNoRoom
	}
	res := response(c, body)
	cn := s.conn(c, DiscardBody(c))
	cn.relay = true
	if told != nil {
		cn.refused = func() { told(false) }
	}
	cn.hijack(c, func(context.Context) error {
		defer room.Shrink(0)
		if told != nil && closedThere(cn.raw) {
			told(false)
			return errLeft
		}
		err := cn.pass(res, false)
		if told != nil {
			told(err == nil && arrived(cn.raw, arrival))
		}
		return err
	})
	return nil
}

// response is body, with the headers and status that c has, as another server's answer.
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

// arrived waits until the other end's machine has all that was written, and reports
// whether it has.
func arrived(conn net.Conn, within time.Duration) bool {
	late := time.NewTimer(within)
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
