//go:build linux

package files

import (
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
)

// Resolve makes a path absolute and clean: relative paths and ~ start at home.
func Resolve(home, p string) (string, error) {
	switch {
	case strings.IndexByte(p, 0) >= 0:
		return "", kind.New(kind.Invalid, "resolve", "", "path has a NUL byte")
	case p == "~" || strings.HasPrefix(p, "~/"):
		p = home + "/" + p[1:]
	case strings.HasPrefix(p, "~"):
		return "", kind.Newf(kind.Invalid, "resolve", "", "path '%s': ~ can only name the user's own home", p)
	case !strings.HasPrefix(p, "/"):
		p = home + "/" + p
	}
	return path.Clean("/" + p), nil
}

// maxRetries is how often a path resolution is repeated when the tree changes meanwhile.
const maxRetries = 64

// open opens a path below the root.
func (s *Server) open(p string, flags int) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for n := 0; ; n++ {
		fd, err := unix.Openat2(s.root, p, &how)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN && n < maxRetries:
			continue
		case err == unix.ENOSYS && s.cfg.Root == "/":
			// A kernel without the call, where the process's own root is the boundary.
			return openAt(unix.AT_FDCWD, p, flags)
		}
		return fd, err
	}
}

// openAt opens a name in a directory, or a path from the process's own root.
func openAt(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// openDir opens a directory to work in.
func (s *Server) openDir(p string) (int, error) { return s.open(p, unix.O_PATH|unix.O_DIRECTORY) }

// openParent opens the directory that contains a path; base is the name there. The
// root has none.
func (s *Server) openParent(p string) (dir int, base string, err error) {
	if p == "/" {
		return -1, "", kind.New(kind.Invalid, "file", "", "path '/' cannot be changed")
	}
	at, base := path.Split(p)
	dir, err = s.openDir(at)
	return dir, base, err
}

func closeFd(fd int) { unix.Close(fd) }

// procPath returns a path of an open file for calls that do not accept descriptors.
func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// whereIs returns the path below the root of an open file.
func (s *Server) whereIs(fd int) (string, bool) {
	var buf [unix.PathMax]byte
	n, err := unix.Readlink(procPath(fd), buf[:])
	if err != nil || n == 0 || n == len(buf) {
		return "", false
	}
	p := string(buf[:n])
	if s.cfg.Root != "/" {
		var ok bool
		if p, ok = strings.CutPrefix(p, s.cfg.Root); !ok || p != "" && p[0] != '/' {
			return "", false
		}
	}
	return path.Clean("/" + p), true
}
