package shim

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// otherListener is a listening socket of a family that package net does not know,
// such as a guest's vsock.
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
	if err := unix.SetNonblock(own, true); err != nil { // no thread waits for it
		return nil, errors.Join(err, unix.Close(own))
	}
	f := os.NewFile(uintptr(own), "listener")
	rc, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &otherListener{f, rc}, nil
}

// Accept is net.Listener.Accept.
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

// Close is net.Listener.Close.
func (l *otherListener) Close() error { return l.f.Close() }

// Addr is net.Listener.Addr.
func (l *otherListener) Addr() net.Addr { return otherAddr{} }

// otherConn is a connection of an otherListener.
type otherConn struct{ *os.File }

// LocalAddr is net.Conn.LocalAddr.
func (otherConn) LocalAddr() net.Addr { return otherAddr{} }

// RemoteAddr is net.Conn.RemoteAddr.
func (otherConn) RemoteAddr() net.Addr { return otherAddr{} }

// otherAddr is an address that nobody asks for.
type otherAddr struct{}

// Network is net.Addr.Network.
func (otherAddr) Network() string { return "socket" }

// String is net.Addr.String.
func (otherAddr) String() string { return "hostd" }
