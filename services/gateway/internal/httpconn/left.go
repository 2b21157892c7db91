package httpconn

import (
	"net"
	"syscall"

	"github.com/gofiber/fiber/v2"
)

// Cut reports whether a body that ended after n bytes was cut short by its client: the
// server does not report that. A client that closes its side directly after a complete
// body without a Content-Length cannot be distinguished from a dead one, and counts as
// such, as in [Connected].
func Cut(c *fiber.Ctx, n int64) bool {
	if length := c.Request().Header.ContentLength(); length >= 0 {
		return n < int64(length)
	}
	return Left(c)
}

// Left reports whether the client has closed its side of the connection, or all of it,
// as far as is visible without reading. To the server, a body without a Content-Length
// that ends because its client disconnected looks complete.
func Left(c *fiber.Ctx) bool { return LeftOn(c.Context().Conn()) }

// LeftOn is [Left] for a connection.
func LeftOn(conn net.Conn) bool { return peerClosed(underlying(conn)) }

func peerClosed(conn net.Conn) bool {
	if s, ok := conn.(*secureConn); ok {
		return s.hasLeft()
	}
	rc, ok, err := rawConn(conn)
	if !ok || err != nil {
		return ok
	}
	left := true
	err = rc.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		left = n <= 0 && err != syscall.EAGAIN && err != syscall.EINTR
	})
	return err != nil || left
}
