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

// seals holds the memories of waiting guests as sealed files in the host's memory. QEMU
// opens a file that it maps for writing, even for a private mapping: an attacker that takes
// over one QEMU could change all others through an unsealed file. When the first guest of
// its kind touches a page that was never written, the copy gets a page of zeros, which is
// charged to that guest's QEMU and stays: a guest that uses all of its memory is charged
// twice, the next of its kind once. The zero value is ready to use and safe for
// concurrent use.
type seals struct {
	mu   sync.Mutex
	open map[string]sealed // guarded by mu; by path
}

type sealed struct {
	file *os.File
	of   unix.Stat_t
}

// get returns the sealed copy of the file at path; the caller closes it.
func (s *seals) get(ctx context.Context, path string) (*os.File, error) {
	src, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer src.Close()
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

// forget closes the copies of a file and of files that no longer exist: QEMUs that map
// them keep them.
func (s *seals) forget(path string) {
	if s.open == nil {
		s.open = map[string]sealed{}
	}
	for p, copied := range s.open {
		if _, err := os.Stat(p); err != nil || p == path {
			copied.file.Close()
			delete(s.open, p)
		}
	}
}
