//go:build linux

package files

import (
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
)

// resolve sends the entry of the file that the path leads to, with its real path.
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
	var st unix.Statx_t
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st) == nil && st.Mask&unix.STATX_BTIME != 0 {
		e.born = st.Btime
	}
	return o.send(&e)
}
