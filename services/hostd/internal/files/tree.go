//go:build linux

package files

import (
	"errors"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
)

const dirMode = 0o755

// maxLevels is the maximum depth to which a tree is listed and removed: each level takes a
// descriptor, and those of volumes are hostd's own. Deeper files have no path of valid length.
const maxLevels = 1024

func tooDeep(op string) error {
	return kind.Newf(kind.Invalid, op, "", "directories are nested deeper than %d levels", maxLevels)
}

// list sends the entries of a directory, and of those below it to a depth, sorted
// by name; each directory comes before its contents. Links are
// listed and not followed.
func (o *op) list() error {
	fd, err := o.open(o.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if errors.Is(err, unix.ENOTDIR) {
		return kind.Newf(kind.Invalid, "list", "", "path is not a directory: %s", o.path)
	}
	if err != nil {
		return err
	}
	defer o.endTurn()
	return o.walk(fd, o.path, max(o.req.Depth, 1), 1)
}

// A request that lists more names or levels than freeNames and freeLevels waits for
// a turn. Its client must then read within turnTimeout: others wait for their turns.
const (
	freeNames   = nameBatch
	freeLevels  = 16
	turnTimeout = 2 * time.Minute
)

func (o *op) takeTurn() (err error) {
	if o.cfg.Turn == nil || o.end != nil {
		return nil
	}
	if o.end, err = o.cfg.Turn(); err != nil {
		return err
	}
	return o.setDeadline(time.Now().Add(turnTimeout))
}

func (o *op) endTurn() {
	if o.end != nil {
		o.setDeadline(time.Time{}) //nolint:errcheck // the rest needs no memory
		o.end()
	}
}

// walk lists an open directory, which it closes, and those below it down to a depth;
// level is the directory's own.
func (o *op) walk(fd int, at string, depth, level uint32) error {
	dir := os.NewFile(uintptr(fd), at)
	defer dir.Close()
	if level > maxLevels {
		return tooDeep("list")
	}
	if level > freeLevels {
		if err := o.takeTurn(); err != nil {
			return err
		}
	}
	before := o.listed
	defer func() { o.listed = before }()
	all, err := o.names(dir)
	switch {
	case level > 1 && oneOf(err, unix.EACCES):
		return nil // no permission, which gVisor reports here, not at the open
	case err != nil:
		return err
	}
	for _, name := range all {
		if Hidden(name) {
			continue
		}
		p := path.Join(at, name)
		e, err := o.statAt(fd, name, p)
		switch {
		case errors.Is(err, unix.ENOENT): // removed meanwhile
			continue
		case err != nil:
			return err
		}
		if err := o.send(&e); err != nil {
			return err
		}
		if level == depth || e.st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		sub, err := openAt(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
		switch {
		case oneOf(err, unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EACCES):
			continue // removed or replaced meanwhile, or no permission
		case err != nil:
			return err
		}
		if err := o.walk(sub, p, depth, level+1); err != nil {
			return err
		}
	}
	return nil
}

// maxNames is the maximum number of names of a directory, and of its parents, in memory at
// once: they are sorted, and those of volumes are in hostd's memory.
const maxNames = 1 << 18

// names returns the sorted names in a directory, and adds them to o.held.
func (o *op) names(dir *os.File) ([]string, error) {
	var all []string
	for {
		some, err := dir.Readdirnames(nameBatch)
		all = append(all, some...)
		if o.listed += len(some); o.listed > maxNames {
			return nil, kind.Newf(kind.Exhausted, "list", "", "a directory and its parents have more than %d files", maxNames)
		}
		switch {
		case isEOF(err):
			slices.Sort(all)
			return all, nil
		case err != nil:
			return nil, err
		}
		if o.listed > freeNames {
			if err := o.takeTurn(); err != nil {
				return nil, err
			}
		}
	}
}

// makeDir makes a directory that does not exist.
func (o *op) makeDir() error {
	prepare := o.ensure
	if o.req.Single {
		prepare = o.mkdir
	}
	made, err := prepare(o.path)
	switch {
	case errors.Is(err, unix.ENOTDIR) && o.isFile(o.path):
		return kind.Newf(kind.Invalid, "make directory", "", "path already exists but it is not a directory: %s", o.path)
	case err != nil:
		return err
	case !made && !o.req.Force:
		return kind.Newf(kind.Conflict, "make directory", "", "directory already exists: %s", o.path)
	}
	if made && o.req.Mode != 0 {
		if err := o.chmod(); err != nil {
			return err
		}
	}
	return o.sendStat(o.path)
}

// chmod sets the mode of the file at the path; of a link, of its target.
func (o *op) chmod() error {
	fd, err := o.open(o.path, unix.O_PATH)
	if err != nil {
		return err
	}
	defer closeFd(fd)
	return unix.Fchmodat(unix.AT_FDCWD, procPath(fd), o.req.Mode, 0)
}

// change sets the owner, the group and the mode of the file at the path.
func (o *op) change() error {
	uid, gid, err := file.ParseOwner(o.req.User)
	if err != nil {
		return err
	}
	fd, err := o.open(o.path, unix.O_PATH)
	if err != nil {
		return err
	}
	defer closeFd(fd)
	if uid != file.Keep || gid != file.Keep {
		if err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	if o.req.Mode != 0 {
		if err := o.chmod(); err != nil {
			return err
		}
	}
	return o.sendStat(o.path)
}

// isFile reports whether something other than a directory exists at p.
func (o *op) isFile(p string) bool {
	fd, err := o.open(p, unix.O_PATH)
	if err != nil {
		return false
	}
	defer closeFd(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR
}

// ensure makes the missing directories of p, and reports whether it made the last
// one.
func (o *op) ensure(p string) (made bool, err error) {
	fd, err := o.openDir(p)
	if err == nil {
		closeFd(fd)
		return false, nil
	}
	if !errors.Is(err, unix.ENOENT) || p == "/" {
		return false, err
	}
	if _, err := o.ensure(path.Dir(p)); err != nil {
		return false, err
	}
	return o.mkdir(p)
}

// mkdir makes one directory, and reports whether it did: it may exist.
func (o *op) mkdir(p string) (made bool, err error) {
	if p == "/" {
		return false, nil
	}
	at, base := path.Split(p)
	dir, err := o.openDir(at)
	if err != nil {
		return false, err
	}
	defer closeFd(dir)
	switch err := unix.Mkdirat(dir, base, dirMode); {
	case err == unix.EEXIST: // made by another process, or a dangling link
		fd, err := o.openDir(p)
		if err == nil {
			closeFd(fd)
		}
		return false, err
	case err != nil:
		return false, err
	}
	return true, o.own(dir, base)
}

// own gives a new file to the account.
func (o *op) own(dir int, name string) error {
	if !o.give {
		return nil
	}
	return unix.Fchownat(dir, name, o.who.UID, o.who.GID, unix.AT_SYMLINK_NOFOLLOW)
}

// move renames, and makes the directories that the new name needs.
func (o *op) move() error {
	to, err := Resolve(o.who.Home, o.req.To)
	if err != nil {
		return err
	}
	from, name, err := o.openParent(o.path)
	if err != nil {
		return err
	}
	defer closeFd(from)
	var st unix.Stat_t
	if err := unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err // before anything is made
	}
	if to == o.path {
		return o.sendStat(to) // gVisor would return ENOTEMPTY here
	}
	if _, err := o.ensure(path.Dir(to)); err != nil {
		return errorOf(to, err)
	}
	dir, base, err := o.openParent(to)
	if err != nil {
		return errorOf(to, err)
	}
	defer closeFd(dir)
	err = unix.Renameat(from, name, dir, base)
	if errors.Is(err, unix.EXDEV) {
		return kind.Newf(kind.Precondition, "move", "", "'%s' and '%s' are on different file systems", o.path, to)
	}
	if err != nil {
		return errorOf(to, err)
	}
	return o.sendStat(to)
}

// remove removes the file at the path and, unless the request is for a single one, all below
// it. A missing file counts as removed, unless it has to exist.
func (o *op) remove() error {
	dir, base, err := o.openParent(o.path)
	if err == nil {
		defer closeFd(dir)
		var st unix.Stat_t
		err = unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	switch {
	case errors.Is(err, unix.ENOENT) && !o.req.Exists:
		return nil
	case err != nil:
		return err
	case o.req.Single:
		return removeOne(dir, base)
	}
	return removeAll(dir, base, 1)
}

// removeOne removes a file or an empty directory.
func removeOne(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if oneOf(err, unix.EISDIR, unix.EPERM) {
		return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	return err
}

// removeAll removes a name of a directory, which is at that level of a tree; it does not
// follow links.
func removeAll(dir int, name string, level int) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	for n := 0; ; n++ {
		err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		switch {
		case err == nil || err == unix.ENOENT:
			return nil
		case err != unix.ENOTEMPTY && err != unix.EEXIST || n == maxRetries:
			return err // ENOTEMPTY at the end: a process fills it as fast
		}
		if level > maxLevels {
			return tooDeep("remove")
		}
		if err := empty(dir, name, level); err != nil {
			return err
		}
	}
}

// nameBatch is the number of names of a directory in memory at a time.
const nameBatch = 1024

// empty removes all contents of a directory at that level.
func empty(dir int, name string, level int) error {
	fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	for {
		names, err := f.Readdirnames(nameBatch)
		if len(names) == 0 {
			if err != nil && !isEOF(err) {
				return err
			}
			return nil
		}
		for _, n := range names {
			if err := removeAll(fd, n, level+1); err != nil {
				return err
			}
		}
	}
}

func oneOf(err error, errnos ...unix.Errno) bool {
	for _, e := range errnos {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
