package shim

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// otherListener is a listening socket of a family that package net does not support, such
// as vsock in a guest.
type otherListener struct {
	f  *os.File
	rc syscall.RawConn
}

// listenOther takes over fd.
func listenOther(fd uintptr) (net.Listener, error) {
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
	return &otherListener{f, rc}, nil
}

// Accept implements net.Listener.
func (l *otherListener) Accept() (net.Conn, error) {
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
	return otherConn{os.NewFile(uintptr(fd), "connection")}, nil
}

// Close implements net.Listener.
func (l *otherListener) Close() error { return l.f.Close() }

// Addr implements net.Listener.
func (l *otherListener) Addr() net.Addr { return otherAddr{} }

// otherConn is a connection of an otherListener.
type otherConn struct{ *os.File }

// LocalAddr implements net.Conn.
func (otherConn) LocalAddr() net.Addr { return otherAddr{} }

// RemoteAddr implements net.Conn.
func (otherConn) RemoteAddr() net.Addr { return otherAddr{} }

// otherAddr is a placeholder; no code uses these addresses.
type otherAddr struct{}

// Network implements net.Addr.
func (otherAddr) Network() string { return "socket" }

// String implements net.Addr.
func (otherAddr) String() string { return "hostd" }
