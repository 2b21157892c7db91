//go:build linux

package files

import (
	"encoding/binary"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
)

// Watcher reports changes in a directory. Run must be called from one goroutine.
type Watcher struct {
	o        *op
	req      file.Watch
	f        *os.File // the inotify descriptor
	fd       int
	dirs     map[int32]string  // watched directories, by number: their paths below the root of the watch
	moved    map[uint32]string // temporary names of content being renamed, by cookie
	reported map[string]bool   // names found in new directories, whose events may still come
	pending  []byte
}

// watchMask selects the reported events.
const watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_ATTRIB |
	unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// Numbers of filesystem.EventType.
const (
	eventCreate = 1
	eventWrite  = 2
	eventRemove = 3
	eventRename = 4
	eventChmod  = 5
)

// Watch starts a watch, so that changes after it returns are reported. It returns
// NotFound, Denied, Invalid for a path that is not a directory or is on a network file system,
// or Exhausted at the kernel's limit. Directories below without permission are left out.
func (s *Server) Watch(req *file.Watch) (*Watcher, error) {
	who, err := s.cfg.Lookup(req.User)
	if err != nil {
		return nil, err
	}
	p, err := Resolve(who.Home, req.Path)
	if err != nil {
		return nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, kind.Newf(kind.Exhausted, "watch", "", "cannot watch: %s", err)
	}
	w := &Watcher{
		o: &op{Server: s, who: who, path: p, name: make(map[uint64]string)}, req: *req, fd: fd,
		f: os.NewFile(uintptr(fd), "inotify"), dirs: make(map[int32]string), moved: make(map[uint32]string), reported: make(map[string]bool),
	}
	if err := w.begin(); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

func (w *Watcher) begin() error {
	dir, err := w.o.openDir(w.o.path)
	switch {
	case oneOf(err, unix.ENOTDIR):
		return kind.Newf(kind.Invalid, "watch", "", "path %s not a directory", w.o.path)
	case err != nil:
		return errorOf(w.o.path, err)
	}
	defer closeFd(dir)
	if onNetwork(dir) && !w.req.Network {
		return kind.Newf(kind.Invalid, "watch", "", "cannot watch path on network filesystem: %s", w.o.path)
	}
	switch err := w.add(dir, "", false); {
	case oneOf(err, unix.ENOSPC): // it does not mean a full disk
		return kind.Newf(kind.Exhausted, "watch", "", "cannot watch %s: the sandbox has reached the kernel's limit of watched directories", w.o.path)
	case oneOf(err, unix.EACCES):
		return errorOf(w.o.path, err)
	case err != nil:
		return kind.Newf(kind.Exhausted, "watch", "", "cannot watch %s: %s", w.o.path, err)
	}
	return nil
}

// onNetwork reports whether a directory's changes may be made on another machine, and
// not be noticed.
func onNetwork(fd int) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return false
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC:
		return true
	}
	return false
}

// add watches an open directory, and those below it if requested; report
// is true if its contents are new.
func (w *Watcher) add(dir int, rel string, report bool) error {
	wd, err := unix.InotifyAddWatch(w.fd, procPath(dir), watchMask)
	switch {
	case rel != "" && oneOf(err, unix.EACCES, unix.ENOENT, unix.ESRCH):
		return nil // no permission, or removed meanwhile, as a process's directory
	case err != nil:
		return err
	}
	w.dirs[int32(wd)] = rel
	if !w.req.Recursive {
		return nil
	}
	fd, err := openAt(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	names, _ := f.ReadDir(-1)
	for _, d := range names {
		at := path.Join(rel, d.Name())
		if Hidden(d.Name()) {
			continue
		}
		if report {
			w.reported[at] = true
			w.event(at, eventCreate)
		}
		if !d.IsDir() {
			continue
		}
		sub, err := openAt(fd, d.Name(), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
		if err != nil {
			continue
		}
		err = w.add(sub, at, report)
		closeFd(sub)
		if err != nil {
			return err
		}
	}
	return nil
}

// Stop ends Run.
func (w *Watcher) Stop() { w.f.Close() }

const watchBuffer = 32 << 10

// Run writes events to out as they occur, each Write whole ones, until Stop. If out is
// slow, the kernel finally drops events, which is an event, too.
func (w *Watcher) Run(out io.Writer) error {
	buf := make([]byte, watchBuffer)
	for {
		n, err := w.f.Read(buf)
		if err != nil {
			return err
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(b))
			mask, cookie := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[8:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			if end > len(b) {
				break
			}
			name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:end]), "\x00")
			b = b[end:]
			w.happened(wd, mask, cookie, name)
			if len(w.pending) >= watchBuffer {
				if err := w.flush(out); err != nil {
					return err
				}
			}
		}
		if n < watchBuffer/2 { // the kernel has no more events of names that were already found
			clear(w.reported)
		}
		if err := w.flush(out); err != nil {
			return err
		}
	}
}

// flush writes pending events in parts of whole events that a reader accepts at
// once.
func (w *Watcher) flush(out io.Writer) error {
	for b := w.pending; len(b) > 0; {
		n := 0
		for n < len(b) {
			size, k := protowire.ConsumeVarint(b[n:])
			next := n + k + int(size)
			if n > 0 && next > watchBuffer {
				break
			}
			n = next
		}
		if _, err := out.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	if w.pending = w.pending[:0]; cap(w.pending) > 4*watchBuffer {
		w.pending = nil
	}
	return nil
}

// happened handles one event of the kernel's.
func (w *Watcher) happened(wd int32, mask, cookie uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		w.overflow()
		return
	}
	rel, ok := w.dirs[wd]
	switch {
	case mask&unix.IN_IGNORED != 0:
		delete(w.dirs, wd)
		return
	case !ok:
		return
	case name == "":
		if rel == "" {
			w.self(mask)
		}
		return
	}
	at := path.Join(rel, name)
	switch {
	case Hidden(name):
		if mask&unix.IN_MOVED_FROM != 0 {
			w.moved[cookie] = name
		}
		return
	case mask&unix.IN_MOVED_TO != 0 && w.moved[cookie] != "":
		// envd's sequence for a written file: it creates the file, sets the owner, writes.
		if strings.HasPrefix(w.moved[cookie], hiddenNew) {
			w.event(at, eventCreate)
		}
		delete(w.moved, cookie)
		w.event(at, eventChmod)
		w.event(at, eventWrite)
		return
	case mask&unix.IN_CREATE != 0 && w.reported[at]:
		delete(w.reported, at)
		return
	}
	w.named(mask, at)
}

func (w *Watcher) named(mask uint32, at string) {
	for _, k := range [...]struct{ mask, event uint32 }{
		{unix.IN_CREATE | unix.IN_MOVED_TO, eventCreate}, {unix.IN_MOVED_FROM, eventRename},
		{unix.IN_ATTRIB, eventChmod}, {unix.IN_MODIFY, eventWrite}, {unix.IN_DELETE, eventRemove},
	} {
		if mask&k.mask != 0 {
			w.event(at, k.event)
		}
	}
	if !w.req.Recursive || mask&unix.IN_ISDIR == 0 {
		return
	}
	if mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 {
		w.watchNew(at)
	}
	if mask&unix.IN_MOVED_FROM != 0 {
		w.forget(at)
	}
}

// self reports an event of the watched directory itself.
func (w *Watcher) self(mask uint32) {
	switch {
	case mask&unix.IN_DELETE_SELF != 0:
		w.event(".", eventRemove)
	case mask&unix.IN_MOVE_SELF != 0:
		w.event(".", eventRename)
	case mask&unix.IN_ATTRIB != 0:
		w.event(".", eventChmod)
	}
}

// watchNew watches a new directory below the path.
func (w *Watcher) watchNew(at string) {
	dir, err := w.o.open(path.Join(w.o.path, at), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return // removed again
	}
	defer closeFd(dir)
	if w.add(dir, at, true) != nil {
		w.overflow() // events there are not noticed
	}
}

// forget stops watching a directory that was moved away and has another path now.
func (w *Watcher) forget(at string) {
	for wd, rel := range w.dirs {
		if rel == at || strings.HasPrefix(rel, at+"/") {
			unix.InotifyRmWatch(w.fd, uint32(wd)) //nolint:errcheck // it no longer exists
			delete(w.dirs, wd)
		}
	}
}

// event appends a filesystem.FilesystemEvent.
func (w *Watcher) event(name string, typ uint32) {
	b := field.AppendUint(appendString(nil, 1, name), 2, uint64(typ))
	if w.req.Entries && (typ == eventCreate || typ == eventWrite || typ == eventChmod) {
		if e, err := w.o.stat(path.Join(w.o.path, name)); err == nil {
			b = field.PutBytes(b, 3, w.o.appendEntry(nil, &e))
		}
	}
	w.pending = protowire.AppendBytes(w.pending, b)
}

// overflow reports that events were lost: the client must list the directory to catch up.
func (w *Watcher) overflow() {
	b := field.AppendUint(appendString(nil, 1, "."), file.OverflowField, 1)
	w.pending = protowire.AppendBytes(w.pending, b)
}
