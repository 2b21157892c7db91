package shim

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// rawListener is a listening socket of a family that package net does not support, such
// as vsock in a guest.
type rawListener struct {
	f  *os.File
	rc syscall.RawConn
}

// listenRaw takes over fd.
func listenRaw(fd uintptr) (net.Listener, error) {
	own, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, ListenFD)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	if err := unix.SetNonblock(own, true); err != nil { // so that waiting does not hold a thread
		return nil, errors.Join(err, unix.Close(own))
	}
	f := os.NewFile(uintptr(own), "listener")
	rc, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &rawListener{f, rc}, nil
}

// Accept implements net.Listener.
func (l *rawListener) Accept() (net.Conn, error) {
	var fd int
	var failed error
	err := l.rc.Read(func(at uintptr) bool {
		fd, _, failed = unix.Accept4(int(at), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		return failed != unix.EAGAIN
	})
	if err == nil {
		err = os.NewSyscallError("accept4", failed)
	}
	if err != nil {
		return nil, err
	}
	return rawConn{os.NewFile(uintptr(fd), "connection")}, nil
}

// Close implements net.Listener.
func (l *rawListener) Close() error { return l.f.Close() }

// Addr implements net.Listener.
func (l *rawListener) Addr() net.Addr { return rawAddr{} }

// rawConn is a connection of a rawListener.
type rawConn struct{ *os.File }

// LocalAddr implements net.Conn.
func (rawConn) LocalAddr() net.Addr { return rawAddr{} }

// RemoteAddr implements net.Conn.
func (rawConn) RemoteAddr() net.Addr { return rawAddr{} }

// rawAddr is a placeholder; no code uses these addresses.
type rawAddr struct{}

// Network implements net.Addr.
func (rawAddr) Network() string { return "socket" }

// String implements net.Addr.
func (rawAddr) String() string { return "hostd" }
