package live

import (
	"context"
	"net"
	"os"
	"path/filepath"
)

const socketFile = "shim.sock"

// Listen creates the shim's listening socket in dir, whose path may be longer than a
// unix address.
func Listen(dir string) (*os.File, error) { return ListenAt(dir, socketFile) }

// ListenAt creates a listening socket with the given name in dir.
func ListenAt(dir, name string) (*os.File, error) {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	addr, done, err := address(dir, name)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	return l.File()
}

// Dial connects to the shim that listens in dir.
func Dial(ctx context.Context, dir string) (net.Conn, error) { return DialAt(ctx, dir, socketFile) }

// DialAt connects to the socket with the given name in dir.
func DialAt(ctx context.Context, dir, name string) (net.Conn, error) {
	addr, done, err := address(dir, name)
	if err != nil {
		return nil, err
	}
	defer done()
	var d net.Dialer
	return d.DialContext(ctx, "unix", addr)
}
