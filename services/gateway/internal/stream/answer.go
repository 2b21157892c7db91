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

// Answer answers the request with body and the headers and status that c has, and
// tells then whether the client's machine has all of it, before the connection
// serves another request. What is not sure counts as not: the client had closed its
// side before the answer was sent, or its machine does not say. It tells once more,
// that it was not, if that machine threw it away in the end because nobody read it.
func (s *Streams) Answer(c *fiber.Ctx, body []byte, told func(whole bool)) {
	res := response(c, body)
	cn := s.conn(c, DiscardBody(c))
	cn.relay = true
	cn.refused = func() { told(false) }
	cn.hijack(c, func(context.Context) error {
		if closedThere(cn.raw) {
			told(false)
			return errLeft
		}
		err := cn.pass(res, false)
		told(err == nil && arrived(cn.raw, arrival))
		return err
	})
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
