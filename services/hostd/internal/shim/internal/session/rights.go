package session

import (
	"net"

	"golang.org/x/sys/unix"
)

// rightsConn is a connection whose first bytes may carry a descriptor (SCM_RIGHTS).
type rightsConn struct {
	net.Conn
	read bool
	fd   int // -1: none came
}

// Read implements net.Conn.
func (h *rightsConn) Read(b []byte) (int, error) {
	u, ok := h.Conn.(*net.UnixConn)
	if h.read || !ok {
		return h.Conn.Read(b)
	}
	h.read = true
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := u.ReadMsgUnix(b, oob) // sets close-on-exec on received descriptors
	if fds := descriptors(oob[:oobn]); len(fds) > 0 {
		h.fd = fds[0]
	}
	return n, err
}

func descriptors(oob []byte) []int {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) == 0 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return nil
	}
	return fds
}

// take returns the descriptor, if one came, and gives up ownership.
func (h *rightsConn) take() (fd int, ok bool) {
	fd, h.fd = h.fd, -1
	return fd, fd >= 0
}

// drop closes a descriptor that was not taken.
func (h *rightsConn) drop() {
	if fd, ok := h.take(); ok {
		unix.Close(fd)
	}
}
