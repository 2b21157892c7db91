//go:build linux

package microvm

import (
	"context"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/nslaunch"
)

// seals are the memories of guests that wait, as sealed files in this host's memory. QEMU
// opens what it maps to write, also where it maps it as its own: who breaks out of one
// could change all others through a file. Where a guest is the first of its kind that
// touches a page which nobody has filled, the copy gets a page of zeros, which is counted
// for that guest's QEMU and stays: one that uses all of its memory has it twice, and the
// next of its kind once. Its zero value is ready, and may be used by
// many at a time.
type seals struct {
	mu   sync.Mutex
	open map[string]sealed // by mu; by path
}

type sealed struct {
	file *os.File
	of   unix.Stat_t
}

// get gives the sealed copy of the file at path; the caller closes it.
func (s *seals) get(ctx context.Context, path string) (*os.File, error) {
	src, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer src.Close() //nolint:errcheck // it was only read from
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was, ok := s.open[path]
	if !ok || was.of.Dev != st.Dev || was.of.Ino != st.Ino || was.of.Mtim != st.Mtim {
		f, err := nslaunch.Seal("guest", 0o666, func(to *os.File) error {
			if err := to.Truncate(st.Size); err != nil {
				return err
			}
			return live.CopyRange(ctx, to, 0, src, 0, st.Size)
		})
		if err != nil {
			return nil, err
		}
		s.forget(path)
		s.open[path] = sealed{f, st}
	}
	fd, err := unix.FcntlInt(s.open[path].file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return os.NewFile(uintptr(fd), path), os.NewSyscallError("dup", err)
}

// forget lets go of the copy of a file, and of those of files that are gone: who maps
// them has them.
func (s *seals) forget(path string) {
	if s.open == nil {
		s.open = map[string]sealed{}
	}
	for p, copied := range s.open {
		if _, err := os.Stat(p); err != nil || p == path {
			copied.file.Close() //nolint:errcheck // it was not written to
			delete(s.open, p)
		}
	}
}
