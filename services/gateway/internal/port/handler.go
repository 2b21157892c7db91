package port

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Dialer connects to ports. It is implemented by [lifecycle.Lifecycle].
type Dialer interface {
	DialPort(ctx context.Context, id sandbox.ID, port int) (*mux.Stream, error)
	Wake(ctx context.Context, id sandbox.ID) (bool, error)
	IngressClient(ctx context.Context, id sandbox.ID, traffic string) (core.Principal, error)
	Network(id sandbox.ID) (sandbox.Network, bool)
}

// Handler proxies requests. It keeps connections to the servers in sandboxes open for
// later requests.
type Handler struct {
	dialer    Dialer
	streams   *stream.Streams
	transport *http.Transport
	uploads   *http.Transport // for large bodies: one connection each
}

const (
	idleTimeout   = 30 * time.Second // of a connection to a server in a sandbox
	idlePerServer = 64
	maxIdle       = 1024
	maxHead       = 256 << 10 // of a response
	buffer        = 32 << 10
	switchTimeout = 30 * time.Second // limit for a server's reply to an upgrade request

	failedBodyTimeout = 10 * time.Second // how long the body of a failed request is read
)

// New returns a handler. Close closes its idle connections.
func New(d Dialer, streams *stream.Streams) *Handler {
	h := &Handler{dialer: d, streams: streams, transport: &http.Transport{
		// A server in a sandbox has no verifiable certificate, and the path to it needs
		// no protection.
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    switchTimeout,
		DisableCompression:     true,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    idlePerServer,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHead,
		WriteBufferSize:        buffer,
		ReadBufferSize:         buffer,
	}}
	h.transport.DialContext = h.dial(func(s *mux.Stream) net.Conn { return s })
	h.uploads = h.transport.Clone()
	h.uploads.DialContext = h.dial(func(s *mux.Stream) net.Conn { return &noDeadlineConn{Stream: s} })
	h.uploads.MaxIdleConnsPerHost = -1 // a later request could read bytes left over from this one
	return h
}

// Methods returns the methods that are proxied: all registered ones (IANA, RFC 9110),
// for WebDAV servers and the like. CONNECT is included, but Serve refuses it. The HTTP
// server refuses all others.
func Methods() []string {
	return append(slices.Clone(fiber.DefaultMethods),
		"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK", "LOCK", "MERGE", "MKACTIVITY",
		"MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE", "ORDERPATCH", "PROPFIND", "PROPPATCH", "QUERY", "REBIND",
		"REPORT", "SEARCH", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL")
}

// Close closes the idle connections.
func (h *Handler) Close() { h.transport.CloseIdleConnections() }

// dial returns a dial function for the transport; wrap converts its connections.
func (h *Handler) dial(wrap func(*mux.Stream) net.Conn) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		id, port, err := parse(addr)
		if err != nil {
			return nil, err
		}
		s, err := h.dialer.DialPort(ctx, id, port)
		if err != nil {
			return nil, err // not a nil *mux.Stream in a net.Conn
		}
		return wrap(s), nil
	}
}

func parse(addr string) (sandbox.ID, int, error) {
	name, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	id, err := sandbox.ParseID(name)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.Atoi(port)
	return id, n, err
}

// Serve proxies a request to a port of a sandbox.
func (h *Handler) Serve(c *fiber.Ctx, t route.Target) error {
	if t.Sandbox == "" {
		return h.write(c, httperr.Gone(t.Named))
	}
	if t.Port < 1 || t.Port > 65535 {
		return h.write(c, Closed(t))
	}
	if c.Method() == fiber.MethodConnect { // tunnels are not supported
		return h.write(c, httperr.Proxied{SandboxID: t.Named, Message: "CONNECT is not passed on", Port: t.Port, Code: http.StatusMethodNotAllowed})
	}
	traffic := c.Get(route.HeaderTraffic)
	if _, err := h.dialer.IngressClient(c.UserContext(), t.Sandbox, traffic); kind.Is(err, kind.Denied) {
		return h.write(c, private(t, traffic != ""))
	} else if err != nil {
		return h.write(c, unreached(t, err))
	}
	// A reused connection would not reveal that its sandbox is paused.
	if ok, err := h.dialer.Wake(c.UserContext(), t.Sandbox); err != nil {
		return h.write(c, unreached(t, err))
	} else if !ok {
		return h.write(c, httperr.Gone(t.Named))
	}
	req, body, err := request(c, t)
	if err != nil {
		return h.write(c, httperr.Proxied{SandboxID: t.Named, Message: "the request cannot be passed on: " + err.Error(), Port: t.Port, Code: http.StatusBadRequest})
	}
	if n, ok := h.dialer.Network(t.Sandbox); ok {
		if n.MaskHost != "" {
			req.Host = strings.ReplaceAll(n.MaskHost, "${PORT}", strconv.Itoa(t.Port))
		}
		if slices.Contains(n.HTTPSPorts, t.Port) {
			req.URL.Scheme = "https"
		}
	}
	if body != nil && body.Large() {
		// The connection cannot be taken over while the body arrives. A server may ignore
		// an upgrade (RFC 9110, 7.8), so none is requested.
		req.Header.Del("Upgrade")
		req.Header.Del("Connection")
		return h.upload(c, t, req, body)
	}
	if body != nil {
		if err := body.ReadAll(c, req); err != nil {
			return err
		}
	}
	if req.Header.Get("Upgrade") != "" {
		return h.upgrade(c, t, req)
	}
	h.streams.Relay(c, true, func(ctx context.Context) (*http.Response, error) {
		return roundTrip(h.transport, req.WithContext(ctx))
	}, failure(c, t)) //nolint:bodyclose // Relay closes it
	return nil
}

// upload proxies a request with a large body. The HTTP server reads the body from the
// client's connection, which can be taken over only after the body's end. An early
// response does not wait for it.
func (h *Handler) upload(c *fiber.Ctx, t route.Target, req *http.Request, body *httpconn.Upload) error {
	fail := failure(c, t) // before other goroutines read the client's connection, and with it trailers into the head
	c.Context().Conn().SetReadDeadline(time.Time{})
	ctx, cancel := context.WithCancel(c.UserContext())
	body.OnFailure(cancel)
	stop := body.Watch(cancel)
	res, err := roundTrip(h.uploads, req.WithContext(ctx))
	stop()
	var clean bool // the body was read completely
	var broken error
	if err != nil {
		if clean, broken = body.Release(); clean && broken == nil {
			c.Context().Conn().SetReadDeadline(time.Now().Add(failedBodyTimeout))
			clean = httpconn.DiscardBody(c)
		}
	} else {
		clean, broken = body.State()
	}
	if broken != nil {
		cancel()
		if err == nil {
			res.Body.Close()
		}
		c.Context().SetConnectionClose()
		return httpconn.ErrUnread
	}
	if clean {
		h.streams.Relay(c, true, func(relaying context.Context) (*http.Response, error) {
			context.AfterFunc(relaying, cancel)
			return res, err
		}, fail)
		return nil
	}
	if err != nil {
		res = fail(err)
	}
	h.streams.RelayEarly(c, res, cancel, body.Drain)
	return nil
}

// upgrade proxies a request to switch protocols.
func (h *Handler) upgrade(c *fiber.Ctx, t route.Target, req *http.Request) error {
	// This context lasts as long as the switched connection.
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.UserContext()))
	late := time.AfterFunc(switchTimeout, cancel)
	var conn net.Conn
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { conn = i.Conn }})
	res, err := roundTrip(h.transport, req.WithContext(traced))
	if !late.Stop() && err == nil {
		res.Body.Close()
		err = context.DeadlineExceeded
	}
	if err == nil && res.StatusCode == http.StatusSwitchingProtocols {
		if to, ok := res.Body.(mux.Joined); ok {
			wake := func() { h.dialer.Wake(ctx, t.Sandbox) } //nolint:errcheck // written data waits until the sandbox runs
			h.streams.Switch(c, res, &ingressConn{Joined: to, conn: conn, wake: wake}, cancel)
			return nil
		}
		res.Body.Close()
		err = errors.New("a switch of protocols that cannot be passed on")
	}
	h.streams.Relay(c, true, func(relaying context.Context) (*http.Response, error) {
		context.AfterFunc(relaying, cancel)
		return res, err
	}, failure(c, t)) //nolint:bodyclose // Relay closes it
	return nil
}

// Closed returns the error of a port on which nothing listens.
func Closed(t route.Target) httperr.Proxied {
	return httperr.Proxied{SandboxID: t.Named, Message: "The sandbox is running but port is not open", Port: t.Port, Code: http.StatusBadGateway}
}

// private returns the error for a request without a valid traffic token.
func private(t route.Target, shown bool) httperr.Proxied {
	text := "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing"
	if shown {
		text = "Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid"
	}
	return httperr.Proxied{SandboxID: t.Named, Message: text, Code: http.StatusForbidden}
}

// failure returns a function that makes the response to a failed request.
func failure(c *fiber.Ctx, t route.Target) func(error) *http.Response {
	browser := httperr.Browser(c)
	return func(err error) *http.Response {
		p := unreached(t, err)
		return p.Response(browser)
	}
}

// unreached returns the error for a missing response.
func unreached(t route.Target, err error) httperr.Proxied {
	p := Closed(t)
	switch k := kind.Of(err); k {
	case kind.NotFound:
		p = httperr.Gone(t.Named)
	case kind.Precondition:
	case kind.Unavailable, kind.Exhausted, kind.Deadline:
		p.Message = "The port cannot be reached right now"
	default:
		p.Message = "The server in the sandbox did not answer"
	}
	return p
}

// write responds with an error of the gateway. The rest of a large body is discarded
// after the response.
func (h *Handler) write(c *fiber.Ctx, p httperr.Proxied) error {
	if httpconn.DiscardBody(c) {
		return httperr.WriteProxied(c, p)
	}
	body := httpconn.NewUpload(c, 0)
	body.Close()
	h.streams.RelayEarly(c, p.Response(httperr.Browser(c)), func() {}, body.Drain) //nolint:bodyclose // RelayEarly closes it
	return nil
}
