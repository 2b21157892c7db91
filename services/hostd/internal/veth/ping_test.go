//go:build linux

package veth

import (
	"testing"

	"golang.org/x/sys/unix"
)

// ping sends an echo request, as programs without privileges do.
func (r namespace) ping(to [4]byte) error {
	return r.in(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		limit := unix.NsecToTimeval(int64(waitTime))
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
			return err
		}
		const echo = "\x08\x00\x00\x00\x00\x00\x00\x01" // the kernel fills in the rest
		if err := unix.Sendto(fd, []byte(echo), 0, &unix.SockaddrInet4{Addr: to}); err != nil {
			return err
		}
		_, _, err = unix.Recvfrom(fd, make([]byte, 64), 0)
		return err
	})
}

func TestASandboxPings(t *testing.T) {
	h := newTestHost(t)
	if err := h.attach(t, "ia").ping([4]byte{8, 8, 8, 8}); err != nil {
		t.Error(err)
	}
}
