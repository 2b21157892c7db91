package websocket

import (
	"context"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fasthttp/websocket"
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/tracecontext"
)

// Options are the rules for the connections of a surface. A zero field means its default.
type Options struct {
	// Protocols are the subprotocols in order of preference. Without a match none is selected.
	Protocols []string
	// Origins are the web origins whose pages may connect, besides the gateway's own.
	Origins []string
	// AnyOrigin allows the pages of all origins. It requires credentials that a browser does not
	// send by itself.
	AnyOrigin bool

	MaxMessage   int // bytes of a received message; default 16 MiB
	MaxFragments int // frames of a received message; default 4096

	PingInterval time.Duration // default 30 s
	PongTimeout  time.Duration // time for the client to send anything after a ping, checked with the next ping; default 20 s
	WriteTimeout time.Duration // how long a client may read nothing; default that of the streams
	CloseTimeout time.Duration // time for the client to close the connection after a close frame; default 5 s
}

// Handler handles one connection.
type Handler struct {
	// Serve handles the connection, which ends when Serve returns: with [Normal], or with the
	// code for the kind of its error, unless Serve has closed it. The cause of ctx has
	// kind.Unavailable in a drain and kind.Canceled if the connection ended. Required.
	Serve func(ctx context.Context, c *Conn) error
	// Drain is called when the gateway drains, while Serve runs. It sends the protocol's last
	// message and closes the connection. The default closes it with [GoingAway]. With
	// [LeaveToServe] Serve does that, whose context has ended.
	Drain func(c *Conn)
}

// withDefaults returns the options with all fields set.
func (o Options) withDefaults() *Options {
	set := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	set(&o.PingInterval, 30*time.Second)
	set(&o.PongTimeout, 20*time.Second)
	set(&o.CloseTimeout, 5*time.Second)
	if o.MaxMessage <= 0 {
		o.MaxMessage = 16 << 20
	}
	if o.MaxFragments <= 0 {
		o.MaxFragments = 4096
	}
	return &o
}

// LeaveToServe is a [Handler.Drain] for handlers that end with their context, such as
// [Conn.Stream].
func LeaveToServe(*Conn) {}

const goingAway = "the gateway is shutting down; reconnect"

// Endpoint is a kind of connections with the same options.
type Endpoint struct {
	server *Server
	opts   *Options
}

// Endpoint returns an endpoint for connections with these options.
func (s *Server) Endpoint(o Options) *Endpoint { return &Endpoint{server: s, opts: o.withDefaults()} }

// Upgrade upgrades the request to WebSocket and returns at once. h must not use c. Messages
// count against the budget of tenant. If the request cannot be upgraded the error has the
// status to respond with.
func (e *Endpoint) Upgrade(c *fiber.Ctx, tenant string, h Handler) error {
	s := e.server
	key, err := e.check(c)
	if err != nil {
		return err
	}
	protocol := e.protocol(c)
	w := &wire{request: request(key), headers: headers(c, protocol), maxFragments: e.opts.MaxFragments}
	conn := &Conn{wire: w, server: s, opts: e.opts, protocol: protocol, budget: s.streams.Budget(tenant)}
	c.Status(fiber.StatusSwitchingProtocols)
	traced := tracecontext.From(c.UserContext())
	s.streams.HandOver(c, e.opts.WriteTimeout, func(ctx context.Context, raw *httpconn.RawConn) {
		ctx = tracecontext.With(ctx, traced)
		w.Conn, w.raw = raw, raw
		w.run = func(ws *websocket.Conn) { conn.run(ctx, ws, h) }
		s.app.Server().ServeConn(w) //nolint:errcheck // the client left
	})
	return nil
}

// chunked is the length of a body without a length in its head.
const chunked = -1

// check validates the upgrade request and returns its key.
func (e *Endpoint) check(c *fiber.Ctx) (key string, err error) {
	head := &c.Request().Header
	key, ok := keyOf(c)
	switch {
	case !head.IsGet() || !head.IsHTTP11() || !hasToken(c, fiber.HeaderConnection, "upgrade") || !hasToken(c, fiber.HeaderUpgrade, "websocket"):
		c.Set(fiber.HeaderUpgrade, "websocket")
		return "", fiber.NewError(fiber.StatusUpgradeRequired, "this path serves WebSocket only")
	case !e.allowed(c):
		return "", fiber.NewError(fiber.StatusForbidden, "connections from pages of other origins are not allowed")
	case strings.TrimSpace(c.Get(fiber.HeaderSecWebSocketVersion)) != "13":
		c.Set(fiber.HeaderSecWebSocketVersion, "13")
		return "", fiber.NewError(fiber.StatusUpgradeRequired, "WebSocket version not supported: must be 13")
	case !ok:
		return "", fiber.NewError(fiber.StatusBadRequest, "Sec-WebSocket-Key: must be 16 bytes in base64")
	case head.ContentLength() > 0 || head.ContentLength() == chunked:
		c.Context().SetConnectionClose()
		return "", fiber.NewError(fiber.StatusBadRequest, "a WebSocket request must not have a body")
	case e.server.streams.Draining():
		return "", kind.New(kind.Unavailable, "upgrade", "", goingAway)
	}
	return key, nil
}

// keyOf returns the key of the request, and whether it is valid: 16 bytes in base64, so that it
// contains no line end.
func keyOf(c *fiber.Ctx) (key string, ok bool) {
	keys := c.Request().Header.PeekAll(fiber.HeaderSecWebSocketKey) // valid until the next PeekAll
	if len(keys) != 1 || len(keys[0]) != base64.StdEncoding.EncodedLen(16) {
		return "", false
	}
	b, err := base64.StdEncoding.DecodeString(string(keys[0]))
	return string(keys[0]), err == nil && len(b) == 16
}

// hasToken reports whether a header, a list of tokens, contains a token.
func hasToken(c *fiber.Ctx, header, token string) bool {
	for _, value := range c.Request().Header.PeekAll(header) {
		for part := range strings.SplitSeq(string(value), ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

// allowed reports whether the page that connects, if it is one, has an allowed origin.
func (e *Endpoint) allowed(c *fiber.Ctx) bool {
	origins := c.Request().Header.PeekAll(fiber.HeaderOrigin)
	if len(origins) == 0 || e.opts.AnyOrigin {
		return true
	}
	origin := string(origins[0])
	if len(origins) == 1 && slices.Contains(e.opts.Origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return len(origins) == 1 && err == nil && u.Host != "" && strings.EqualFold(u.Host, string(c.Request().Host()))
}

// ownHeaders are the headers that the upgrade itself sends.
const ownHeaders = " connection content-length content-type date sec-websocket-accept sec-websocket-extensions sec-websocket-protocol transfer-encoding upgrade "

// headers returns the headers that middleware set on the response, and the subprotocol.
func headers(c *fiber.Ctx, protocol string) [][2]string {
	var out [][2]string
	for k, v := range c.Response().Header.All() {
		if name := string(k); !strings.Contains(ownHeaders, " "+strings.ToLower(name)+" ") {
			out = append(out, [2]string{name, string(v)})
		}
	}
	if protocol != "" {
		out = append(out, [2]string{fiber.HeaderSecWebSocketProtocol, protocol})
	}
	return out
}

// protocol returns the subprotocol for a request; empty if none matches.
func (e *Endpoint) protocol(c *fiber.Ctx) string {
	for _, p := range e.opts.Protocols {
		if hasToken(c, fiber.HeaderSecWebSocketProtocol, p) {
			return p
		}
	}
	return ""
}

// request returns the upgrade request for the second app. It contains only the client's key.
func request(key string) []byte {
	return []byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + "\r\n\r\n")
}
