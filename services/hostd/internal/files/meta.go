//go:build linux

package files

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/file"
)

// metaPrefix is the prefix of the attributes with a file's metadata.
const metaPrefix = "user.e2b."

// readMeta returns the metadata of the file at p, which must not be a link; unreadable
// metadata count as none.
func readMeta(p string) map[string]string {
	var names [4 * file.MaxMeta]byte
	n, err := unix.Llistxattr(p, names[:])
	if err != nil || n == 0 {
		return nil
	}
	var meta map[string]string
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		key, ok := strings.CutPrefix(name, metaPrefix)
		if !ok || key == "" {
			continue
		}
		var value [file.MaxMeta]byte
		n, err := unix.Lgetxattr(p, name, value[:])
		if err != nil {
			continue
		}
		if meta == nil {
			meta = make(map[string]string)
		}
		meta[key] = string(value[:n])
	}
	if file.CheckMeta(meta) != nil { // not written by this package
		return nil
	}
	return meta
}

// writeMeta sets the metadata of an open file.
func writeMeta(fd int, meta map[string]string) error {
	for k, v := range meta {
		if err := unix.Fsetxattr(fd, metaPrefix+k, []byte(v), 0); err != nil {
			return err
		}
	}
	return nil
}
