//go:build linux

package namespace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// shims holds the shim's binary in memory, sealed, as a file that all may
// execute and none may read. Without that, whoever is root in a sandbox, or
// the host's user himself where the sandbox has but his uid, could reach the
// host's file through /proc/1/exe; and a process that executes what it may not
// read cannot be traced by anyone in its user namespace, so that nobody in the
// sandbox gets at the shim's memory or descriptors.
type shims struct {
	mu   sync.Mutex
	open map[shimKey]*os.File
}

type shimKey struct {
	dev, ino uint64
	size     int64
	mtime    int64 // ns
}

// get opens the shim at path. The file belongs to shims.
func (s *shims) get(path string) (*os.File, error) {
	src, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	key := shimKey{st.Dev, st.Ino, st.Size, st.Mtim.Nano()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.open[key]; f != nil {
		return f, nil
	}
	f, err := seal(src)
	if err != nil {
		return nil, fmt.Errorf("copy %s to memory: %w", path, err)
	}
	s.open[key] = f
	return f, nil
}

const allSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

func seal(src io.Reader) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("millrace-shim", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3 knows no other kind
		fd, err = unix.MemfdCreate("millrace-shim", flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "millrace-shim")
	if _, err := io.Copy(f, src); err != nil {
		f.Close()
		return nil, err
	}
	if err := f.Chmod(0o111); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, allSeals); err != nil {
		f.Close()
		return nil, os.NewSyscallError("seal", err)
	}
	return f, nil
}
