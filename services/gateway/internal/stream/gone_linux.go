package stream

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// states of a TCP connection (include/net/tcp_states.h) in which its client has left.
const (
	tcpClose     = 7 // it was reset, or answers no more
	tcpCloseWait = 8 // it said that it sends no more
)

// Gone is LeftOn for who does not read what the client has sent: there may be more before
// its end.
func Gone(conn net.Conn) bool {
	sc, ok := below(conn).(syscall.Conn)
	if !ok {
		return false
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	var info *unix.TCPInfo
	var bad error
	err = rc.Control(func(fd uintptr) { info, bad = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return err != nil || bad == nil && (info.State == tcpClose || info.State == tcpCloseWait)
}
