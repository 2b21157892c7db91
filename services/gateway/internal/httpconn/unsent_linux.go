package httpconn

import (
	"net"

	"golang.org/x/sys/unix"
)

// unsent returns how many bytes the peer's machine has not acknowledged, or an error
// if the connection is broken. With TLS these are bytes of the socket below. It returns 0 for a
// connection that is not a socket.
func unsent(conn net.Conn) (int, error) {
	rc, ok, err := rawConn(conn)
	if !ok || err != nil {
		return 0, err
	}
	n, bad := 0, error(nil)
	err = rc.Control(func(fd uintptr) {
		if n, bad = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); bad != nil {
			return
		}
		var code int
		if code, bad = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); bad == nil && code != 0 {
			bad = unix.Errno(code)
		}
	})
	if err == nil {
		err = bad
	}
	return n, err
}
