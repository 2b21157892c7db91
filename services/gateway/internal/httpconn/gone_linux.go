package httpconn

import (
	"net"

	"golang.org/x/sys/unix"
)

// States of a TCP connection (include/net/tcp_states.h) in which the client is gone.
const (
	tcpClose     = 7 // reset, or no longer acknowledging
	tcpCloseWait = 8 // the client has closed its sending side
)

// Gone is like [LeftOn] for a connection with unread data from the client: that data may
// come before the end.
func Gone(conn net.Conn) bool {
	if disconnected(conn) {
		return true
	}
	s, ok := underlying(conn).(*secureConn)
	return ok && s.hasLeft()
}

// disconnected reports whether the client has closed its side of the socket, or all of it.
func disconnected(conn net.Conn) bool {
	rc, ok, err := rawConn(conn)
	if !ok || err != nil {
		return ok
	}
	var info *unix.TCPInfo
	var bad error
	err = rc.Control(func(fd uintptr) { info, bad = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return err != nil || bad == nil && (info.State == tcpClose || info.State == tcpCloseWait)
}
