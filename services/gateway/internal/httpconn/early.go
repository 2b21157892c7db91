package httpconn

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

// RelayEarly is like [Conns.Relay] for a response that arrives while other code still
// reads the request's body. It starts to pass on res at once and calls wait, which must
// return once nothing reads the body; the channel answered is closed when res is
// passed on completely. cancel is called when the client disconnects, or at the end. The
// connection serves no other request.
func (s *Conns) RelayEarly(c *fiber.Ctx, res *http.Response, cancel func(), wait func(answered <-chan struct{})) {
	out := s.conn(c, false)
	out.raw = newSocket(c.Context().Conn())
	head := c.Method() == fiber.MethodHead
	answered := make(chan struct{})
	var err error // once answered is closed
	go func() {
		defer close(answered)
		defer res.Body.Close()
		if err = recovery.Do(s.cfg.Log, "answer", func() error { return out.pass(res, head) }); err == nil {
			closeWrite(out.raw) // some clients wait for it
		}
	}()
	wait(answered)
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
	refuseTimeout = 30 * time.Second // how long the rest of a refused body is discarded
	refuseLimit   = 1 << 30          // how many bytes of it
)

// Refuse sends the response that c has to a request whose body was not read to its end.
// The response leaves at once. The rest of the body is discarded, for at most 30 s and
// 1 GiB, so that clients that send everything before they read see it too. The connection
// serves no other request.
func (s *Conns) Refuse(c *fiber.Ctx) {
	raw, body := c.Context().Conn(), c.Context().RequestBodyStream()
	res := response(c, bytes.Clone(c.Response().Body())) //nolint:bodyclose // RelayEarly closes it
	s.RelayEarly(c, res, func() {}, func(<-chan struct{}) {
		raw.SetReadDeadline(time.Now().Add(refuseTimeout))
		io.Copy(io.Discard, io.LimitReader(body, refuseLimit)) //nolint:errcheck // best effort
	})
}

func closeWrite(c net.Conn) {
	if w, ok := underlying(c).(interface{ CloseWrite() error }); ok {
		w.CloseWrite() //nolint:errcheck // the client is gone
	}
}
