package websocket

import (
	"sync"
	"sync/atomic"

	fws "github.com/gofiber/contrib/websocket"
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/recovery"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

const (
	// appBuffer is the size of the second app's read buffer, which each connection keeps. It
	// holds one request of Upgrade. The library's reads are larger and bypass it.
	appBuffer = 512
	// libraryBuffer is the size of the library's read buffer, which each connection keeps.
	// Larger reads bypass it, too.
	libraryBuffer = 1 << 10
)

// Server upgrades requests and counts their connections. Its methods may be called
// concurrently.
type Server struct {
	streams *stream.Streams
	app     *fiber.App // reads the requests that Upgrade makes
	open    atomic.Int64
	ended   [ends]atomic.Uint64 // by reason
}

// New returns a server whose connections are registered with streams.
func New(streams *stream.Streams) *Server {
	s := &Server{
		streams: streams,
		app: fiber.New(fiber.Config{
			DisableStartupMessage:     true,
			DisableDefaultContentType: true,
			ReadBufferSize:            appBuffer,
		}),
	}
	s.app.Server().NoDefaultServerHeader = true
	upgrade := fws.New(func(c *fws.Conn) {
		recovery.Do(streams.Log(), "websocket", func() error { //nolint:errcheck // logged
			c.Locals(localWire).(*wire).run(c.Conn) //nolint:errcheck,forcetypeassert // set below
			return nil
		})
	}, fws.Config{
		Origins:         []string{"*"}, // Upgrade has checked the client's
		ReadBufferSize:  libraryBuffer,
		WriteBufferSize: libraryBuffer,
		WriteBufferPool: &sync.Pool{},       // stays empty: the library sends only close frames
		RecoverHandler:  func(*fws.Conn) {}, // the default sends the text of a panic; recovery.Do is below it
	})
	s.app.Use(func(c *fiber.Ctx) error {
		w, ok := c.Context().Conn().(*wire)
		if !ok {
			return fiber.ErrUpgradeRequired
		}
		for _, h := range w.headers {
			c.Response().Header.Add(h[0], h[1])
		}
		w.headers = nil
		c.Locals(localWire, w)
		return upgrade(c)
	})
	s.app.Handler() // completes the app
	return s
}

// localWire is the key of the wire in the locals of a request of the second app.
const localWire = "wire"

// ending is the reason why a connection ended.
type ending int32

// Reasons. Zero means that the connection is open.
const (
	endClient    ending = iota + 1 // the client closed it or left
	endServer                      // the handler returned
	endDrain                       // the gateway drained
	endViolation                   // the client violated the protocol or a limit
	endNoPong                      // the client answered no ping
	endStalled                     // the client did not read
	endFault                       // the handler failed
	ends
)

var endNames = [ends]string{"", "client", "server", "drain", "violation", "no_pong", "stalled", "fault"}

// Open returns the number of open connections.
func (s *Server) Open() int { return int(s.open.Load()) }

// Ended calls yield with each reason for which connections end and the number of those that
// ended for it.
func (s *Server) Ended(yield func(reason string, n uint64)) {
	for why := endClient; why < ends; why++ {
		yield(endNames[why], s.ended[why].Load())
	}
}
