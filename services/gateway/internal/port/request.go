package port

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// request returns the request for the sandbox's server. It shares no memory with c,
// except for the body; the body is nil if the request has no body.
func request(c *fiber.Ctx, t route.Target) (*http.Request, *httpconn.Upload, error) {
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
	var body *httpconn.Upload
	if c.Context().RequestBodyStream() != nil && c.Request().Header.ContentLength() != 0 {
		length := int64(max(-1, c.Request().Header.ContentLength()))
		body = httpconn.NewUpload(c, length)
		if req.Body, req.ContentLength = body, length; length < 0 {
			// Without this the transport probes the body for some methods: it would read the
			// body while another goroutine writes the head and uses the trailers' names.
			req.TransferEncoding = []string{"chunked"}
		}
		if err := body.Trail(c, req); err != nil {
			return nil, nil, err
		}
	}
	return req, body, nil
}

// roundTrip sends a request and returns a response that may be passed on. An unsolicited
// protocol switch is an error: a proxy in front of the gateway would take the client's
// connection for switched.
func roundTrip(t *http.Transport, req *http.Request) (*http.Response, error) {
	res, err := t.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	switched := res.StatusCode == http.StatusSwitchingProtocols && req.Header.Get("Upgrade") != ""
	if res.StatusCode < http.StatusOK && !switched {
		res.Body.Close()
		return nil, fmt.Errorf("the server answered with %d", res.StatusCode)
	}
	return res, nil
}

// headers returns the request's headers without those of the client's connection, and
// with X-Forwarded ones.
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
		"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", route.HeaderTraffic} {
		h.Del(name)
	}
	if upgrade != "" {
		h.Set("Connection", "Upgrade")
		h.Set("Upgrade", upgrade)
	}
	if h.Get("User-Agent") == "" {
		h["User-Agent"] = nil // otherwise the transport sets its own
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
