package stream

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

// Relay answers the request with what get gives, an answer of another server's,
// and returns at once; it goes on after the handler has returned, so that get
// must not touch c. clean says that nothing of the request's body is left. get's
// context ends when the client leaves; a drain lets the answer end. An error of
// get is answered by fail; an answer that breaks off closes the connection, so
// that nobody takes it for whole.
func (s *Streams) Relay(c *fiber.Ctx, clean bool, get func(context.Context) (*http.Response, error), fail func(error) *http.Response) {
	cn := s.conn(c, clean)
	cn.relay = true
	head := c.Method() == fiber.MethodHead
	cn.hijack(c, func(ctx context.Context) error {
		res, err := get(ctx)
		if err != nil {
			res = fail(err)
		}
		defer res.Body.Close()                                      //nolint:errcheck // it was read
		defer context.AfterFunc(ctx, func() { res.Body.Close() })() //nolint:errcheck // the read fails
		return cn.pass(res, head)
	})
}

// relayBuffer is how much of an answer is passed on at a time.
const relayBuffer = 32 << 10

// pass writes an answer. Its length is as its server told it; where it told none
// it is chunked, and every part leaves at once.
func (cn *conn) pass(res *http.Response, head bool) error {
	none := head || res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotModified
	chunked := res.ContentLength < 0 && !none && cn.chunked
	if res.ContentLength < 0 && !none && !cn.chunked {
		cn.keep = false // its end is the connection's
	}
	buf := make([]byte, Headroom+relayBuffer+2)
	cn.head = cn.appendHead(make([]byte, 0, 1024), res, chunked)
	if none || res.ContentLength == 0 || chunked {
		if err := cn.send(buf[:Headroom], false); err != nil || !chunked {
			return err
		}
	}
	cn.chunked = chunked
	return cn.passBody(res, buf)
}

func (cn *conn) passBody(res *http.Response, buf []byte) error {
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

func (cn *conn) appendHead(dst []byte, res *http.Response, chunked bool) []byte {
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

// reason is the phrase behind the status, in the server's own words if it has any.
func reason(res *http.Response) string {
	if _, own, ok := strings.Cut(res.Status, " "); ok {
		return own
	}
	return http.StatusText(res.StatusCode)
}

// appendHeaders appends headers but those that are the connection's or the
// body's own.
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

// Switch passes on that another server switched protocols, and then carries
// bytes both ways between it and the client until one of them has enough, or in
// Drain; then it calls over.
func (s *Streams) Switch(c *fiber.Ctx, res *http.Response, to mux.Joined, over func()) {
	head := append([]byte("HTTP/1.1 101 Switching Protocols"), appendHeaders(nil, res.Header)...)
	head = appendHeader(appendHeader(head, "Connection", "Upgrade"), "Upgrade", res.Header.Get("Upgrade"))
	head = append(head, "\r\n\r\n"...)
	cn := s.conn(c, false)
	rc := c.Context()
	rc.HijackSetNoResponse(true)
	rc.Hijack(func(hijacked net.Conn) {
		defer over()
		var early []byte
		cn.raw, early = unwrap(hijacked)
		cn.cancel = func(err error) {
			mux.Cut(to, err)
			cn.raw.Close() //nolint:errcheck // nothing to be done
		}
		s.add(cn)
		defer s.remove(cn)
		if err := recovery.Do(s.cfg.Log, "switched connection", func() error {
			if err := cn.deliver(head); err != nil {
				return err
			}
			cn.raw.SetWriteDeadline(time.Time{})                     //nolint:errcheck // the next write tells
			mux.Join(&switched{held{Conn: cn.raw, head: early}}, to) //nolint:errcheck // both know
			return nil
		}); err != nil {
			cn.cancel(err)
		}
	})
}

// switched is a connection whose protocol was switched.
type switched struct{ held }

// CloseWrite ends what is sent.
func (s *switched) CloseWrite() error {
	if c, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return s.Close()
}
