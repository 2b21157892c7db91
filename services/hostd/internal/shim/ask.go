package shim

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

const (
	maxAsks    = 64        // that wait for those before them
	maxContent = 512 << 10 // bytes of a file in an Ask or its Reply
	fileMode   = 0o644     // of a file that was not there
	dirMode    = 0o755     // of the directories made for it
	tempPrefix = ".millrace-"
)

// ask puts a question in line behind those before it. A write that comes again
// is not applied again: what stands there now is told instead.
func (s *Shim) ask(f *wire.Ask) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Rev <= s.asked {
		if slices.ContainsFunc(s.asks, func(a wire.Ask) bool { return a.Rev == f.Rev }) {
			return // it is still in line
		}
		if r, ok := s.outcomes.find(f.Rev); ok && r.Error != "" {
			s.post(&r)
			return
		}
		if f.Method == "write" {
			f.Method, f.Data = "stat", nil
		}
	}
	if len(s.asks) >= maxAsks {
		s.refuse(f.Rev, kind.Exhausted, "too many questions wait")
		return
	}
	s.asked = max(s.asked, f.Rev)
	s.asks = append(s.asks, *f)
	if len(s.asks) == 1 {
		go s.answerAll()
	}
}

// answerAll works on the line until it is empty.
func (s *Shim) answerAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.asks) > 0 {
		f := s.asks[0]
		s.mu.Unlock()
		data, err := s.answer(&f)
		s.mu.Lock()
		s.asks = s.asks[1:]
		r := wire.Reply{Rev: f.Rev, Data: data}
		if err != nil {
			r.Kind, r.Error = kind.Of(err), kind.Message(err)
		}
		s.reply(&r)
	}
	s.asks = nil
}

// answer does what is asked: the reply of stat and write is a
// filesystem.EntryInfo, that of read the file's content.
func (s *Shim) answer(f *wire.Ask) ([]byte, error) {
	who, err := s.lookup(f.User)
	if err != nil {
		return nil, err
	}
	path, err := who.resolve(f.Path)
	if err != nil {
		return nil, err
	}
	switch f.Method {
	case "stat":
		return entryInfo(path)
	case "read":
		return readFile(path)
	case "write":
		if err := writeFile(&who, path, f.Data, os.FileMode(f.Mode)&os.ModePerm); err != nil {
			return nil, err
		}
		return entryInfo(path)
	}
	return nil, kind.Newf(kind.Unimplemented, "ask", "", "method %q", f.Method)
}

// fileError tells what a failed operation on a path means to its client.
func fileError(path string, err error) error {
	var k *kind.Error
	switch {
	case err == nil || errors.As(err, &k):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return kind.Newf(kind.NotFound, "ask", "", "path '%s' does not exist", path)
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return kind.Newf(kind.Denied, "ask", "", "path '%s': permission denied", path)
	case errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.EINVAL):
		return kind.Newf(kind.Invalid, "ask", "", "path '%s' cannot be: %s", path, reason(err))
	case errors.Is(err, syscall.ELOOP):
		return kind.Newf(kind.Precondition, "ask", "", "path '%s' is a loop of links", path)
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EMFILE):
		return kind.Newf(kind.Exhausted, "ask", "", "path '%s': %s", path, reason(err))
	}
	return kind.Wrap(kind.Internal, "ask", path, err)
}

func reason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// readFile reads a small regular file.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // opening a FIFO must not wait
	if err != nil {
		return nil, fileError(path, err)
	}
	defer f.Close() //nolint:errcheck // it was only read from
	if err := regular(path, f); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxContent+1))
	if err != nil {
		return nil, fileError(path, err)
	}
	if len(b) > maxContent {
		return nil, kind.Newf(kind.Exhausted, "ask", "", "path '%s' has more than %d bytes", path, maxContent)
	}
	return b, nil
}

func regular(path string, f *os.File) error {
	fi, err := f.Stat()
	switch {
	case err != nil:
		return fileError(path, err)
	case fi.IsDir():
		return kind.Newf(kind.Invalid, "ask", "", "path '%s' is a directory", path)
	case !fi.Mode().IsRegular():
		return kind.Newf(kind.Invalid, "ask", "", "path '%s' is not a regular file", path)
	}
	return nil
}

// writeFile puts data in the place of the file, all at once: it is written
// beside it and renamed. A link is followed; parents are made.
func writeFile(who *account, path string, data []byte, mode os.FileMode) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if mode == 0 {
		mode = fileMode
	}
	switch fi, err := os.Stat(path); {
	case err == nil && fi.IsDir():
		return kind.Newf(kind.Invalid, "ask", "", "path '%s' is a directory", path)
	case err == nil && !fi.Mode().IsRegular():
		return kind.Newf(kind.Invalid, "ask", "", "path '%s' is not a regular file", path)
	case err == nil:
		mode = fi.Mode().Perm()
	}
	dir := filepath.Dir(path)
	if err := makeDirs(who, dir); err != nil {
		return fileError(dir, err)
	}
	f, err := os.CreateTemp(dir, tempPrefix+"*")
	if err != nil {
		return fileError(path, err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), who.own(f.Name()), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name()) //nolint:errcheck // the first error is told
	}
	return fileError(path, err)
}

// makeDirs makes the directories that are missing, for who.
func makeDirs(who *account, dir string) error {
	fi, err := os.Stat(dir)
	switch {
	case err == nil && fi.IsDir():
		return nil
	case err == nil:
		return syscall.ENOTDIR
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := makeDirs(who, filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return who.own(dir)
}

// own gives a new file to the account, if the shim may.
func (a *account) own(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}

// nameOf is the first name in a colon-separated file with that number.
func nameOf(path string, id uint32) string {
	number := strconv.FormatUint(uint64(id), 10)
	for f := range colonFile(path) {
		if len(f) > 2 && f[2] == number {
			return f[0]
		}
	}
	return number
}
