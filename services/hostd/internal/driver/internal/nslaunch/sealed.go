//go:build linux

package nslaunch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Shims keeps the shim's binary in memory, sealed, as a file that all may
// execute and none may read. Otherwise root in a sandbox, or the host's user
// where the sandbox has only that uid, could reach the host's file through
// /proc/1/exe. Moreover a process that executes an unreadable file cannot be
// traced by others in its user namespace, which protects the shim's memory and
// descriptors from the sandbox. The zero value is ready to use and safe for concurrent
// use.
type Shims struct {
	mu   sync.Mutex
	open map[shimKey]*os.File // guarded by mu
}

type shimKey struct {
	dev, ino uint64
	size     int64
	mtime    int64 // ns
}

// Get opens the shim at path. The file belongs to Shims.
func (s *Shims) Get(path string) (*os.File, error) {
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
	f, err := Seal("millrace-shim", 0o111, func(f *os.File) error { _, err := io.Copy(f, src); return err })
	if err != nil {
		return nil, fmt.Errorf("copy %s to memory: %w", path, err)
	}
	if s.open == nil {
		s.open = map[shimKey]*os.File{}
	}
	s.open[key] = f
	return f, nil
}

const sealTries = 20

const allSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// Seal makes a file in memory that cannot change once fill has filled it: a process
// that opens it for writing can only map a private copy.
func Seal(name string, mode os.FileMode, fill func(*os.File) error) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // older than Linux 6.3: no exec seal
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err = fill(f); err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		// The kernel waits 0.15 s while something else, such as a migration, holds a page.
		for range sealTries {
			if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, allSeals); !errors.Is(err, unix.EBUSY) {
				break
			}
		}
		err = os.NewSyscallError("seal", err)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
