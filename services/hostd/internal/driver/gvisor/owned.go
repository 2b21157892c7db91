//go:build linux

package gvisor

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/layers"
)

// Where hostd is not root, the files of a snapshot all belong to its user, which is root
// inside. Files that belong to another user are put into the seed, where they can have
// an owner: gVisor reads it into its own file system.

// maxOwned limits the contents of such files, in bytes: gVisor keeps them in memory
// while it reads them.
const maxOwned = 1 << 30

// owned writes the files of a snapshot that do not belong to root.
type owned struct {
	*seed
	size  uint64
	links map[[2]uint64]string // first name written of each file with several names
}

// writeOwned writes the files that do not belong to root, one call at a time: to be read,
// a file that its owner may not read is made readable for a moment.
func (d *Driver) writeOwned(s *seed) error {
	d.reading.Lock()
	defer d.reading.Unlock()
	o := owned{s, 0, map[[2]uint64]string{}}
	for i := range s.under.Layers() {
		all, ok, err := s.under.Owners(i)
		if err == nil && !ok {
			all, err = usersOf(s.under, i)
		}
		if err != nil {
			return err
		}
		for _, w := range all {
			if err := o.put(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// usersOf returns the files of a layer that belong to the user if the driver that made it
// had only one: those in its home and where all may write. The rest is root's, as
// in all sandboxes of this driver.
func usersOf(under *layers.Below, layer int) (all []layers.Owner, err error) {
	for _, top := range []string{home, "tmp", "var/tmp"} {
		found, err := under.FindIn(layer, top)
		if err != nil {
			return nil, err
		}
		if found.Path == "" {
			continue
		}
		err = filepath.WalkDir(found.Path, func(at string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrPermission) {
				return nil // what the user made unreadable stays root's
			}
			if err != nil || at == found.Path && top != home {
				return err
			}
			inside := top + strings.TrimPrefix(at, found.Path)
			seen, err := under.Find(inside)
			if err == nil && seen.Path != "" && seen.Layer == layer {
				all = append(all, layers.Owner{UID: userID, GID: userID, Path: inside})
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// put writes a file that is visible in the sandbox, after its parent directories.
func (o *owned) put(w layers.Owner) error {
	found, err := o.under.Find(w.Path)
	if err != nil || found.Path == "" || found.Stat.Mode&unix.S_IFMT == unix.S_IFSOCK {
		return err
	}
	if o.done[w.Path] && !isDir(&found.Stat) {
		return nil
	}
	if err := o.parents(path.Dir(w.Path)); err != nil {
		return err
	}
	h := tar.Header{Name: w.Path}
	o.as(&h, &found.Stat)
	h.Uid, h.Gid = int(w.UID), int(w.GID)
	return o.write(&h, &found)
}

// parents writes the parent directories of a file as root's, until another header sets
// another owner: of two headers of one directory the later counts.
func (o *owned) parents(dir string) error {
	if dir == "." || o.done[dir] {
		return nil
	}
	if err := o.parents(path.Dir(dir)); err != nil {
		return err
	}
	found, err := o.under.Find(dir)
	if err != nil {
		return err
	}
	h := tar.Header{Name: dir, Typeflag: tar.TypeDir}
	o.as(&h, &found.Stat)
	return o.header(&h)
}

// write writes a file.
func (o *owned) write(h *tar.Header, found *layers.Found) error {
	st := &found.Stat
	id := [2]uint64{uint64(st.Dev), st.Ino}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag = tar.TypeDir
		if err := attributes(h, found.Path); err != nil {
			return err
		}
		return o.header(h)
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
		return o.header(h)
	case unix.S_IFLNK:
		to, err := os.Readlink(found.Path)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, to
		return o.header(h)
	}
	if first, ok := o.links[id]; ok {
		h.Typeflag, h.Linkname = tar.TypeLink, "./"+first
		return o.header(h)
	}
	if st.Nlink > 1 {
		o.links[id] = h.Name
	}
	return o.file(h, found)
}

func (o *owned) file(h *tar.Header, found *layers.Found) error {
	if o.size += uint64(found.Stat.Size); o.size > maxOwned {
		return kind.Newf(kind.Exhausted, "create sandbox", "", "the snapshot's files that do not belong to root exceed %d MiB: "+
			"more requires hostd to run as root", maxOwned>>20)
	}
	f, err := readable(found)
	if err != nil {
		return err
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, found.Stat.Size
	if err := attributes(h, found.Path); err != nil {
		return err
	}
	if err := o.header(h); err != nil {
		return err
	}
	_, err = io.Copy(o.w, f)
	return err
}

// readable opens a file, also one that its owner, this user, may not read.
func readable(found *layers.Found) (*os.File, error) {
	f, err := os.Open(found.Path)
	if !errors.Is(err, fs.ErrPermission) {
		return f, err
	}
	if err := unix.Chmod(found.Path, found.Stat.Mode&0o7777|0o400); err != nil {
		return nil, err
	}
	f, err = os.Open(found.Path)
	return f, errors.Join(err, unix.Chmod(found.Path, found.Stat.Mode&0o7777))
}

// attributes adds the user's attributes of a file to its header.
func attributes(h *tar.Header, at string) error {
	const most = 1 << 16 // XATTR_LIST_MAX, XATTR_SIZE_MAX
	names, value := make([]byte, most), make([]byte, most)
	n, err := unix.Llistxattr(at, names)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "listxattr", Path: at, Err: err}
	}
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "user.overlay.") {
			continue
		}
		n, err := unix.Lgetxattr(at, name, value)
		if err != nil {
			return &os.PathError{Op: "getxattr", Path: at, Err: err}
		}
		if n == 0 || strings.Contains(name, "=") {
			continue // a tar cannot represent it
		}
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords[paxAttribute+name] = string(value[:n])
	}
	return nil
}
