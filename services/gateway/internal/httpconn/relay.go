package httpconn

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
)

// Relay responds with what get returns, another server's response, and returns at once.
// It continues after the handler has returned, so get must not use c. clean reports that
// the request's body has been read completely. get's context ends when the client
// disconnects; a drain lets the response finish. If get fails, the response is that of
// fail. A response that breaks off closes the connection, so that the client does not
// take it for complete.
func (s *Conns) Relay(c *fiber.Ctx, clean bool, get func(context.Context) (*http.Response, error), fail func(error) *http.Response) {
	cn := s.conn(c, clean)
	cn.relay = true
	head := c.Method() == fiber.MethodHead
	cn.hijack(c, func(ctx context.Context) error {
		res, err := get(ctx)
		if err != nil {
			res = fail(err)
		}
		defer res.Body.Close()
		defer context.AfterFunc(ctx, func() { res.Body.Close() })()
		return cn.pass(res, head)
	})
}

// relayBuffer is how much of a response is copied at a time.
const relayBuffer = 32 << 10

// pass writes a response with the length that its server declared. Without one it is
// chunked, and every part is sent at once.
func (cn *Conn) pass(res *http.Response, head bool) error {
	noBody := head || res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotModified
	chunked := res.ContentLength < 0 && !noBody && cn.chunked
	if res.ContentLength < 0 && !noBody && !cn.chunked {
		cn.keep = false // ends with the connection
	}
	buf := make([]byte, Headroom+relayBuffer+2)
	cn.head = cn.appendHead(make([]byte, 0, 1024), res, chunked)
	if noBody || res.ContentLength == 0 || chunked {
		if err := cn.send(buf[:Headroom], false); err != nil || !chunked {
			return err
		}
	}
	cn.chunked = chunked
	return cn.passBody(res, buf)
}

func (cn *Conn) passBody(res *http.Response, buf []byte) error {
	for {
		n, err := res.Body.Read(buf[Headroom : Headroom+relayBuffer])
		if n > 0 || cn.head != nil {
			if werr := cn.send(buf[:Headroom+n], false); werr != nil {
				return werr
			}
		}
		switch {
		case err == io.EOF && !cn.chunked:
			return nil
		case err == io.EOF:
			return cn.deliver(append(appendHeaders([]byte("0"), res.Trailer), "\r\n\r\n"...))
		case err != nil:
			return err
		}
	}
}

func (cn *Conn) appendHead(dst []byte, res *http.Response, chunked bool) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(res.StatusCode), 10)
	dst = appendPlain(append(dst, ' '), reason(res))
	dst = appendHeaders(dst, res.Header)
	if res.Header.Get("Date") == "" {
		dst = append(dst, "\r\nDate: "...)
		dst = fasthttp.AppendHTTPDate(dst, time.Now())
	}
	switch {
	case chunked:
		dst = appendHeader(dst, "Transfer-Encoding", "chunked")
		for name := range res.Trailer {
			dst = appendHeader(dst, "Trailer", name)
		}
	case res.ContentLength > 0 || res.ContentLength == 0 && res.StatusCode != http.StatusNoContent && res.StatusCode != http.StatusNotModified:
		dst = appendHeader(dst, "Content-Length", strconv.FormatInt(res.ContentLength, 10))
	}
	if !cn.keep {
		dst = appendHeader(dst, "Connection", "close")
	}
	return append(dst, "\r\n\r\n"...)
}

// reason returns the reason phrase after the status, as the server sent it if it did.
func reason(res *http.Response) string {
	if _, own, ok := strings.Cut(res.Status, " "); ok {
		return own
	}
	return http.StatusText(res.StatusCode)
}

// appendHeaders appends all headers except those about the connection and the framing
// of the body.
func appendHeaders(dst []byte, h http.Header) []byte {
	for name, values := range h {
		switch name {
		case "Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Trailer", "Transfer-Encoding", "Upgrade":
			continue
		}
		for _, v := range values {
			dst = appendHeader(dst, name, v)
		}
	}
	return dst
}

// Switch passes on another server's 101 response and then copies bytes both ways
// between it and the client until either side ends or Drain is called; then it calls
// onEnd.
func (s *Conns) Switch(c *fiber.Ctx, res *http.Response, to mux.Joined, onEnd func()) {
	head := append([]byte("HTTP/1.1 101 Switching Protocols"), appendHeaders(nil, res.Header)...)
	head = appendHeader(appendHeader(head, "Connection", "Upgrade"), "Upgrade", res.Header.Get("Upgrade"))
	head = append(head, "\r\n\r\n"...)
	cn := s.conn(c, false)
	rc := c.Context()
	rc.HijackSetNoResponse(true)
	rc.Hijack(func(hijacked net.Conn) {
		defer onEnd()
		var early []byte
		cn.raw, early = unwrap(hijacked)
		cn.cancel = func(err error) {
			mux.Cut(to, err)
			cn.raw.Close()
		}
		s.add(cn)
		defer s.remove(cn)
		if err := recovery.Do(s.cfg.Log, "switched connection", func() error {
			if err := cn.deliver(head); err != nil {
				return err
			}
			cn.raw.SetWriteDeadline(time.Time{})
			mux.Join(&switchedConn{prefixConn{Conn: cn.raw, prefix: early}}, to)
			return nil
		}); err != nil {
			cn.cancel(err)
		}
	})
}

// switchedConn is a connection whose protocol was switched.
type switchedConn struct{ prefixConn }

// CloseWrite closes the sending side.
func (s *switchedConn) CloseWrite() error {
	if c, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return s.Close()
}
