package port

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/route"
)

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
		body = &upload{r: r, conn: c.Context().Conn(), length: length, failed: func() {}, over: make(chan struct{})}
		if req.Body, req.ContentLength = body, length; length < 0 {
			// What is not said is tried out, for some methods: the body is read beside who
			// writes the head, for which there are the names of trailers yet.
			req.TransferEncoding = []string{"chunked"}
		}
		if err := body.trail(c, req); err != nil {
			return nil, nil, err
		}
	}
	return req, body, nil
}

// ask sends a request, and gives an answer that may be passed on. One that switches although
// nobody asked is none: whoever is before us would take the connection to us for switched.
func ask(t *http.Transport, req *http.Request) (*http.Response, error) {
	res, err := t.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	switched := res.StatusCode == http.StatusSwitchingProtocols && req.Header.Get("Upgrade") != ""
	if res.StatusCode < http.StatusOK && !switched {
		res.Body.Close() //nolint:errcheck // nobody reads it
		return nil, fmt.Errorf("the server answered with %d", res.StatusCode)
	}
	return res, nil
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
		"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", route.HeaderTraffic} {
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
