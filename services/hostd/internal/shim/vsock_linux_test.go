package shim

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// A shim takes over the vsock of a guest's init. Listening needs no VM; connections would.
func TestListenerOfAVsock(t *testing.T) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skip("this system has no vsock: ", err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: unix.VMADDR_PORT_ANY}), unix.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	l, err := listener(uintptr(fd))
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Addr().Network(); got != "vsock" {
		t.Errorf("network %q", got)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("accepted after Close")
	}
}
