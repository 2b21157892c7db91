package live

import (
	"context"
	"net"
	"os"
	"path/filepath"
)

const socketFile = "shim.sock"

// Listen makes the shim's listening socket in dir, which may be deeper than a
// unix address can say.
func Listen(dir string) (*os.File, error) {
	if err := os.Remove(filepath.Join(dir, socketFile)); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	addr, done, err := address(dir)
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
func Dial(ctx context.Context, dir string) (net.Conn, error) {
	addr, done, err := address(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	var d net.Dialer
	return d.DialContext(ctx, "unix", addr)
}
