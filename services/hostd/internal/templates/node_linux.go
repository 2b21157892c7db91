package templates

import (
	"archive/tar"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
)

// userAttribute is the prefix of attributes that users may set.
const userAttribute = "user."

const (
	maxAttribute  = 1 << 16   // bytes of a value, and of the list of all names (XATTR_SIZE_MAX)
	maxAttributes = 512 << 10 // of all values of a file; some file systems permit thousands, which a tar cannot hold
)

// attributes returns the user's attributes of an open file.
func attributes(f *os.File) (map[string]string, error) {
	list := make([]byte, maxAttribute)
	n, err := unix.Flistxattr(int(f.Fd()), list)
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, os.NewSyscallError("flistxattr", err)
	}
	var all map[string]string
	size := 0
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		if !strings.HasPrefix(name, userAttribute) {
			continue
		}
		value := make([]byte, maxAttribute)
		n, err := unix.Fgetxattr(int(f.Fd()), name, value)
		if err != nil {
			return nil, os.NewSyscallError("fgetxattr", err)
		}
		if size += n; size > maxAttributes {
			return nil, kind.Newf(kind.Invalid, "copy files", "", "a file has more than %d KiB of attributes", maxAttributes>>10)
		}
		if all == nil {
			all = make(map[string]string)
		}
		all[name] = string(value[:n])
	}
	return all, nil
}

func setAttribute(f *os.File, name, value string) error {
	return os.NewSyscallError("fsetxattr", unix.Fsetxattr(int(f.Fd()), name, []byte(value), 0))
}

// makeNode makes a pipe, a socket or a whiteout in a directory.
func makeNode(dir *os.File, name string, h *tar.Header) error {
	mode := uint32(unix.S_IFIFO)
	switch {
	case h.Typeflag == tar.TypeChar:
		mode = unix.S_IFCHR // device 0:0
	case h.PAXRecords[socketRecord] != "":
		mode = unix.S_IFSOCK
	}
	return os.NewSyscallError("mknodat", unix.Mknodat(int(dir.Fd()), name, mode|0o600, 0))
}
