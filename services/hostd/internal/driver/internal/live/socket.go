package live

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	socketFile = "shim.sock"
	backlog    = 128
)

// Listen makes the shim's listening socket in dir. A unix address holds 108
// bytes and a data directory may be deeper than that, so that the address goes
// through the directory's descriptor.
func Listen(dir string) (*os.File, error) {
	if err := os.Remove(filepath.Join(dir, socketFile)); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	addr, done, err := address(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), socketFile)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: addr}); err != nil {
		f.Close()
		return nil, os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		f.Close()
		return nil, os.NewSyscallError("listen", err)
	}
	return f, nil
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

func address(dir string) (addr string, done func(), err error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", fd, socketFile), func() { unix.Close(fd) }, nil
}
