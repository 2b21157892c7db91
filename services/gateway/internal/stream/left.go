package stream

import (
	"net"
	"syscall"

	"github.com/gofiber/fiber/v2"
)

// Cut reports whether a body that came to its end after n bytes did so because its
// client left, not because it was whole: the server does not tell. A client that
// closes its side right behind a whole body of no told length cannot be told from
// one that died, and counts as such, as it does everywhere.
func Cut(c *fiber.Ctx, n int64) bool {
	if length := c.Request().Header.ContentLength(); length >= 0 {
		return n < int64(length)
	}
	return Left(c)
}

// Left reports whether the client has closed its side of the connection, or all of
// it, as far as can be seen now without reading. A body whose length is not told
// beforehand and that ended because its client left looks to the server like one
// that is whole.
func Left(c *fiber.Ctx) bool { return LeftOn(c.Context().Conn()) }

// LeftOn is Left for whoever has only the connection.
func LeftOn(conn net.Conn) bool { return closedThere(below(conn)) }

func closedThere(conn net.Conn) bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	left := true
	err = rc.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		left = n <= 0 && err != syscall.EAGAIN && err != syscall.EINTR
	})
	return err != nil || left
}
