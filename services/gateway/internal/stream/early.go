package stream

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/recovery"
)

// RelayEarly is Relay for an answer that came while the request's body is still
// read by others. It begins to pass res on at once, and calls outlast, which must
// return when nobody reads the body any more, and is told when all of res is passed
// on. cancel is called when the client leaves, or at the end. The connection serves
// no other request.
func (s *Streams) RelayEarly(c *fiber.Ctx, res *http.Response, cancel func(), outlast func(answered <-chan struct{})) {
	out := s.conn(c, false)
	out.raw = c.Context().Conn()
	head := c.Method() == fiber.MethodHead
	answered := make(chan struct{})
	var err error // once answered is closed
	go func() {
		defer close(answered)
		defer res.Body.Close() //nolint:errcheck // it was read
		if err = recovery.Do(s.cfg.Log, "answer", func() error { return out.pass(res, head) }); err == nil {
			closeWrite(out.raw) // some clients wait for it
		}
	}()
	outlast(answered)
	cn := s.conn(c, false) // another one: the first is in use
	cn.relay = true
	cn.hijack(c, func(ctx context.Context) error {
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		<-answered
		return err
	})
}

const (
	refusedFor = 30 * time.Second // how long what is left of a refused body is read away
	refusedMax = 1 << 30          // and how many bytes of it
)

// Refuse answers a request whose body was not read to its end with the answer that c has:
// it leaves at once, and what the client still sends is read away, for 30 s and 1 GiB at
// most, because clients that read nothing before they have sent all are to see it, too. The
// connection serves no other request.
func (s *Streams) Refuse(c *fiber.Ctx) {
	raw, body := c.Context().Conn(), c.Context().RequestBodyStream()
	res := response(c, bytes.Clone(c.Response().Body())) //nolint:bodyclose // RelayEarly closes it
	s.RelayEarly(c, res, func() {}, func(<-chan struct{}) {
		raw.SetReadDeadline(time.Now().Add(refusedFor))       //nolint:errcheck // the next read tells
		io.Copy(io.Discard, io.LimitReader(body, refusedMax)) //nolint:errcheck // there is nobody to be told
	})
}

func closeWrite(c net.Conn) {
	if w, ok := below(c).(interface{ CloseWrite() error }); ok {
		w.CloseWrite() //nolint:errcheck // it left
	}
}
