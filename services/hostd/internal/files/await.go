//go:build linux

package files

import (
	"encoding/binary"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
)

// awaitMask selects the events by which a name appears or disappears.
const awaitMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB | unix.IN_ONLYDIR

// awaiter waits for paths to appear, or for one to disappear.
type awaiter struct {
	*op
	missing []string
	present string
	f       *os.File                  // the inotify descriptor
	names   map[int32]map[string]bool // names that count, by watched directory
}

// await returns when one of the missing paths exists or the present one does not. It sends an
// empty frame once it waits.
func await(o *op) error {
	a := &awaiter{op: o}
	for _, p := range o.req.Sources {
		at, err := Resolve(o.who.Home, p)
		if err != nil {
			return err
		}
		a.missing = append(a.missing, at)
	}
	if o.req.To != "" {
		var err error
		if a.present, err = Resolve(o.who.Home, o.req.To); err != nil {
			return err
		}
	}
	for waiting := false; ; waiting = true {
		stop, err := a.arm()
		if err != nil {
			return err
		}
		if a.changed() {
			stop()
			return nil
		}
		if !waiting {
			o.out.Write(file.AppendFrame(nil, nil)) //nolint:errcheck // Flush returns the error
			if err := o.out.Flush(); err != nil {
				stop()
				return err
			}
		}
		err = a.next()
		stop()
		if err != nil {
			return err
		}
	}
}

func (a *awaiter) changed() bool {
	for _, p := range a.missing {
		if a.exists(p) {
			return true
		}
	}
	return a.present != "" && !a.exists(a.present)
}

func (a *awaiter) exists(p string) bool {
	fd, err := a.open(p, unix.O_PATH)
	if err == nil {
		closeFd(fd)
	}
	return err == nil
}

// arm watches all directories on the way to the paths. stop ends the watches.
func (a *awaiter) arm() (stop func(), err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, kind.Newf(kind.Exhausted, "watch", "", "cannot watch: %s", err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	a.f, a.names = f, make(map[int32]map[string]bool)
	over := make(chan struct{})
	go func() {
		select {
		case <-a.broken:
			f.Close()
		case <-over:
		}
	}()
	stop = func() {
		close(over)
		f.Close()
	}
	for _, p := range append([]string{a.present}, a.missing...) {
		if p == "" {
			continue
		}
		if err := a.watch(fd, p); err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}

// watch watches the directories on the way to a path, also behind a link at its end.
func (a *awaiter) watch(fd int, p string) error {
	for range maxLinks {
		dir := "/"
		for name := range strings.SplitSeq(strings.TrimPrefix(p, "/"), "/") {
			ok, err := a.add(fd, dir, name)
			if !ok || err != nil {
				return err
			}
			dir = path.Join(dir, name)
		}
		at, base, err := a.openParent(p)
		if err != nil {
			return nil
		}
		next, err := linkTarget(at, base, p)
		closeFd(at)
		if err != nil {
			return nil
		}
		p = path.Clean(next)
	}
	return nil
}

// add watches a directory for a name. It returns false if the directory does not exist.
func (a *awaiter) add(fd int, dir, name string) (bool, error) {
	at, err := a.openDir(dir)
	if err != nil {
		return false, nil
	}
	defer closeFd(at)
	wd, err := unix.InotifyAddWatch(fd, procPath(at), awaitMask)
	switch {
	case oneOf(err, unix.ENOSPC): // it does not mean a full disk
		return false, kind.New(kind.Exhausted, "watch", "", "cannot watch: the sandbox has reached the kernel's limit of watched directories")
	case err != nil:
		return false, nil
	}
	if a.names[int32(wd)] == nil {
		a.names[int32(wd)] = make(map[string]bool)
	}
	a.names[int32(wd)][name] = true
	return true, nil
}

// next waits for an event that counts.
func (a *awaiter) next() error {
	buf := make([]byte, watchBuffer/8)
	for {
		n, err := a.f.Read(buf)
		if aborted := a.aborted(); aborted != nil {
			return aborted
		}
		if err != nil {
			return err
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			if end > len(b) {
				break
			}
			wd, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
			name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:end]), "\x00")
			b = b[end:]
			if mask&unix.IN_Q_OVERFLOW != 0 || a.names[wd][name] {
				return nil
			}
		}
	}
}
