package httpconn

import (
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// Head is the HTTP head of a stream.
type Head struct {
	Status       int // default 200
	ContentType  string
	Headers      [][2]string   // in addition to those that middleware set on the response
	WriteTimeout time.Duration // how long a client may read nothing; default Config.WriteTimeout
	Timeout      time.Duration // lifetime of the stream, which then ends with kind.Deadline; 0: unlimited
}

// ownHeaders are the headers that the stream itself sends about its body and connection.
const ownHeaders = " connection content-length content-type date keep-alive transfer-encoding "

// appendTo appends the encoded head. It includes the headers that middleware set on
// the response: the server's own response is never sent.
func (h *Head) appendTo(dst []byte, c *fiber.Ctx, chunked, keep bool) []byte {
	status := h.Status
	if status == 0 {
		status = fasthttp.StatusOK
	}
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	dst = append(dst, fasthttp.StatusMessage(status)...)
	dst = append(dst, "\r\nDate: "...)
	dst = fasthttp.AppendHTTPDate(dst, time.Now())
	dst = appendHeader(dst, "Content-Type", h.ContentType)
	if chunked {
		dst = appendHeader(dst, "Transfer-Encoding", "chunked")
	}
	if !keep {
		dst = appendHeader(dst, "Connection", "close")
	}
	for k, v := range c.Response().Header.All() {
		name := string(k)
		if !strings.Contains(ownHeaders, " "+strings.ToLower(name)+" ") {
			dst = appendHeader(dst, name, string(v))
		}
	}
	for _, kv := range h.Headers {
		dst = appendHeader(dst, kv[0], kv[1])
	}
	return append(dst, "\r\n\r\n"...)
}

// appendHeader ends the previous line and begins a header. A line end in a value would
// inject a header: it becomes a space.
func appendHeader(dst []byte, name, value string) []byte {
	dst = append(dst, "\r\n"...)
	dst = append(dst, name...)
	return appendPlain(append(dst, ": "...), value)
}

// appendPlain appends value with a space in place of each control character.
func appendPlain(dst []byte, value string) []byte {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			dst = append(dst, ' ')
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}
