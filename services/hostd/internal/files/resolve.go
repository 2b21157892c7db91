//go:build linux

package files

import (
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
)

// resolve sends the entry of the file that the path leads to, with its real path. The entry has
// a link's target if the path's last name is a link.
func resolve(o *op) error {
	fd, err := o.open(o.path, unix.O_PATH)
	if err != nil {
		return err
	}
	defer closeFd(fd)
	var e entry
	if err := unix.Fstat(fd, &e.st); err != nil {
		return err
	}
	var ok bool
	if e.path, ok = o.whereIs(fd); !ok {
		return kind.Newf(kind.Unavailable, "resolve", "", "path '%s' was moved meanwhile", o.path)
	}
	if dir, base, err := o.openParent(o.path); err == nil {
		var last unix.Stat_t
		if unix.Fstatat(dir, base, &last, unix.AT_SYMLINK_NOFOLLOW) == nil && last.Mode&unix.S_IFMT == unix.S_IFLNK {
			e.link, e.target, e.at = true, e.path, e.st
		}
		closeFd(dir)
	}
	var st unix.Statx_t
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st) == nil && st.Mask&unix.STATX_BTIME != 0 {
		e.born = st.Btime
	}
	return o.send(&e)
}
