package mounts

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/workspace"
	pb "github.com/millrace/millrace/schema/filesystem"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// state is a file on one side.
type state struct {
	size     int64
	modified time.Time
}

func (s state) equal(t state) bool { return s.size == t.size && s.modified.Equal(t.modified) }

// version is a file that is the same on both sides.
type version struct{ local, stored state }

const (
	page    = 1000 // files of a list
	depth   = 512  // of directories: a path has at most 1,024 bytes
	uploads = 8    // concurrent ones of a sandbox

	maxFailed = uploads // failed uploads after which a synchronization ends
)

func (m *mount) principal() core.Principal { return core.Principal{Tenant: m.of.Tenant} }

func (ms *Mounts) with(ctx context.Context, m *mount, req *file.Request, do func(*core.Files) error) error {
	return core.WithFiles(ctx, ms.cfg.Files, m.principal(), m.id, req, do)
}

func (ms *Mounts) makeDir(ctx context.Context, m *mount) error {
	return ms.with(ctx, m, &file.Request{Op: file.OpMakeDir, Path: Dir, Force: true}, func(f *core.Files) error {
		_, err := f.Only()
		return err
	})
}

// plan is what a synchronization has to do.
type plan struct {
	push, pull []workspace.Path
	unstore    []workspace.Path // files to remove in the workspace
	remove     []workspace.Path // files to remove in the sandbox
	compare    []workspace.Path // files of the same size, of which the one in the sandbox is not newer
}

// sync synchronizes a mount, which is locked. Without pull it only stores what changed in the sandbox.
func (ms *Mounts) sync(ctx context.Context, m *mount, pull bool) error {
	begun := time.Now()
	stored, err := ms.stored(ctx, m)
	if err != nil {
		return err
	}
	local, links, err := ms.local(ctx, m)
	if err != nil {
		return err
	}
	m.changes(local)
	p := m.plan(stored, local, links)
	for _, name := range append(p.compare, p.pull...) { // what the workspace has is later
		delete(m.changed, name)
	}
	if p.push, err = ms.push(ctx, m, p.push, local); err != nil {
		return err
	}
	for _, name := range p.unstore {
		if err := ms.cfg.Store.Remove(ctx, m.of, name); err != nil && !kind.Is(err, kind.NotFound) {
			return err
		}
		delete(m.base, name)
	}
	if pull {
		for _, name := range p.remove {
			if err := ms.remove(ctx, m, name); err != nil {
				return err
			}
			delete(m.base, name)
		}
		if err := ms.compare(ctx, m, &p, local, stored); err != nil {
			return err
		}
		if err := ms.pull(ctx, m, p.pull); err != nil {
			return err
		}
	}
	if err := ms.remember(ctx, m, &p, local, pull); err != nil {
		return err
	}
	m.mounted = m.mounted || pull
	m.due, m.stored = time.Now().Add(Interval), begun
	m.look = time.Now().Add(max(lookInterval, lookShare*time.Since(begun)))
	for name := range m.changed {
		if l, here := local[name]; !here || m.base[name].local.equal(l) {
			delete(m.changed, name)
		}
	}
	return nil
}

// plan compares both sides with the last synchronization.
func (m *mount) plan(stored, local map[workspace.Path]state, links map[string]bool) (p plan) {
	for _, name := range slices.Sorted(maps.Keys(local)) {
		l := local[name]
		s, inStore := stored[name]
		was, known := m.base[name]
		here, there := !known || !l.equal(was.local), !known || !s.equal(was.stored)
		switch {
		case known && !here && !inStore:
			p.remove = append(p.remove, name)
		case known && !here && there:
			p.pull = append(p.pull, name)
		case !here:
		case !known && inStore && l.size == s.size && !l.modified.After(s.modified):
			p.compare = append(p.compare, name) // probably copied by another gateway
		case inStore && there && l.modified.Before(s.modified):
			p.pull = append(p.pull, name)
		default:
			p.push = append(p.push, name)
		}
	}
	m.planAbsent(&p, stored, local, links)
	maps.DeleteFunc(m.base, func(name workspace.Path, _ version) bool {
		_, here := local[name]
		_, there := stored[name]
		return !here && !there
	})
	return p
}

// planAbsent plans the files of the workspace that the sandbox does not have.
func (m *mount) planAbsent(p *plan, stored, local map[workspace.Path]state, links map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		if _, ok := local[name]; ok || underLink(name, links) {
			continue
		}
		if was, known := m.base[name]; known && stored[name].equal(was.stored) {
			p.unstore = append(p.unstore, name)
		} else {
			p.pull = append(p.pull, name)
		}
	}
}

// underLink reports whether a path is a link in the sandbox, or leads through one.
func underLink(name workspace.Path, links map[string]bool) bool {
	for at := string(name); at != "."; at = path.Dir(at) {
		if links[at] {
			return true
		}
	}
	return false
}

// stored returns the files of the workspace.
func (ms *Mounts) stored(ctx context.Context, m *mount) (map[workspace.Path]state, error) {
	out := make(map[workspace.Path]state)
	for after := workspace.Path(""); ; {
		p, err := ms.cfg.Store.List(ctx, m.of, "", after, page)
		if err != nil {
			return nil, err
		}
		for i := range p.Files {
			f := &p.Files[i]
			out[f.Path], after = state{f.Size, f.Modified}, f.Path
		}
		if !p.More || len(p.Files) == 0 {
			return out, nil
		}
	}
}

// local returns the regular files in the sandbox, and its links.
func (ms *Mounts) local(ctx context.Context, m *mount) (files map[workspace.Path]state, links map[string]bool, err error) {
	files, links = make(map[workspace.Path]state), make(map[string]bool)
	err = ms.with(ctx, m, &file.Request{Op: file.OpList, Path: Dir, Depth: depth}, func(f *core.Files) error {
		for {
			raw, err := f.Entry()
			if errors.Is(err, io.EOF) {
				return nil
			}
			var e pb.EntryInfo
			if err == nil {
				err = proto.Unmarshal(raw, &e)
			}
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(e.GetPath(), Dir+"/")
			switch {
			case e.SymlinkTarget != nil || e.GetType() == pb.FileType_FILE_TYPE_SYMLINK:
				links[name] = true
			case e.GetType() == pb.FileType_FILE_TYPE_FILE:
				ms.add(m, files, name, &e)
			}
		}
	})
	return files, links, err
}

// add adds a file of the sandbox to the list. One that a workspace cannot have is logged once.
func (ms *Mounts) add(m *mount, files map[workspace.Path]state, name string, e *pb.EntryInfo) {
	p, err := workspace.ParsePath(name)
	if err == nil && e.GetSize() > workspace.MaxFile {
		err = kind.Newf(kind.Invalid, "flush", "", "the file is larger than %d bytes", int64(workspace.MaxFile))
	}
	if err == nil {
		files[p] = state{e.GetSize(), e.GetModifiedTime().AsTime()}
		return
	}
	if _, logged := m.refused[workspace.Path(name)]; !logged {
		m.refused[workspace.Path(name)] = struct{}{}
		ms.cfg.Slog.Warn("flush file of a workspace failed", "sandbox", m.id, "path", name, "err", err)
	}
}

// push stores files of the sandbox, and returns those that it stored. A file that cannot be stored does not hold up
// others, until there are maxFailed.
func (ms *Mounts) push(ctx context.Context, m *mount, names []workspace.Path, local map[workspace.Path]state) (stored []workspace.Path, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex // guards stored, failed and m.changed
	var failed []error
	var g errgroup.Group
	g.SetLimit(uploads)
	for _, name := range names {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			err := ms.pushOne(ctx, m, name, local[name])
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				delete(m.changed, name)
				stored = append(stored, name)
			case errors.Is(err, errChanging) || kind.Is(err, kind.NotFound): // the next synchronization stores it
			case len(failed) < maxFailed:
				if failed = append(failed, err); len(failed) == maxFailed {
					stop()
				}
			}
			return nil
		})
	}
	g.Wait() //nolint:errcheck // no function returns an error
	if len(failed) == 0 {
		return stored, ctx.Err()
	}
	return stored, errors.Join(failed...)
}

// errChanging reports that a file changes while it is read.
var errChanging = errors.New("the file changes")

func (ms *Mounts) pushOne(ctx context.Context, m *mount, name workspace.Path, want state) error {
	at := Dir + "/" + string(name)
	return ms.with(ctx, m, &file.Request{Op: file.OpRead, Path: at}, func(f *core.Files) error {
		got, err := entryState(f)
		switch {
		case kind.Is(err, kind.Unavailable), err != nil && ctx.Err() != nil:
			return err
		case err != nil || !got.equal(want):
			return errors.Join(err, errChanging)
		}
		if err := f.Part(file.Range{Length: -1}); err != nil {
			return err
		}
		same := func() error {
			return ms.with(ctx, m, &file.Request{Op: file.OpStat, Path: at}, func(f *core.Files) error {
				got, err := entryState(f)
				if err == nil && !got.equal(want) {
					err = errChanging
				}
				return err
			})
		}
		return ms.cfg.Store.Put(ctx, m.of, name, want.size, &unchanged{r: f, left: want.size, same: same})
	})
}

func entryState(f *core.Files) (state, error) {
	raw, err := f.Only()
	var e pb.EntryInfo
	if err == nil {
		err = proto.Unmarshal(raw, &e)
	}
	if err == nil && (e.SymlinkTarget != nil || e.GetType() != pb.FileType_FILE_TYPE_FILE) {
		err = errChanging
	}
	return state{e.GetSize(), e.GetModifiedTime().AsTime()}, err
}

// unchanged reads a file, and fails instead of returning its last bytes if the file has changed since: its bytes could
// be of both states. A file that has another size by then has changed, too.
type unchanged struct {
	r    io.Reader
	left int64
	same func() error
}

// Read reads.
func (u *unchanged) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	u.left -= int64(n)
	end := errors.Is(err, io.EOF)
	switch {
	case u.left < 0, end && u.left > 0:
		return 0, errChanging
	case u.left == 0 && (n > 0 || end):
		if changed := u.same(); changed != nil {
			return 0, changed
		}
	}
	return n, err
}

func (ms *Mounts) remove(ctx context.Context, m *mount, name workspace.Path) error {
	return ms.with(ctx, m, &file.Request{Op: file.OpRemove, Path: Dir + "/" + string(name)}, (*core.Files).Done)
}

// pull copies files of the workspace to the sandbox, as one archive.
func (ms *Mounts) pull(ctx context.Context, m *mount, names []workspace.Path) error {
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, mountTimeout)
	defer cancel()
	f, err := ms.cfg.Files.OpenFiles(ctx, m.principal(), m.id, &file.Request{Op: file.OpUnpack, Path: Dir})
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(struct{ io.Writer }{f})
	for _, name := range names {
		if err := ms.pullOne(ctx, m, name, w); err != nil && !kind.Is(err, kind.NotFound) {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := f.CloseWrite(); err != nil {
		return err
	}
	return f.Done()
}

const fileMode = 0o644

func (ms *Mounts) pullOne(ctx context.Context, m *mount, name workspace.Path, w *tar.Writer) error {
	src, err := ms.cfg.Store.Open(ctx, m.of, name)
	if err != nil {
		return err
	}
	defer src.Body.Close()
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: string(name), Size: src.Size, Mode: fileMode, Format: tar.FormatPAX}); err != nil {
		return err
	}
	if _, err = io.Copy(struct{ io.Writer }{w}, src.Body); kind.Is(err, kind.NotFound) {
		err = kind.Wrap(kind.Unavailable, "mount", string(name), err) // replaced meanwhile: the archive is incomplete
	}
	return err
}

// remember keeps what both sides have now.
func (ms *Mounts) remember(ctx context.Context, m *mount, p *plan, local map[workspace.Path]state, pulled bool) error {
	if len(p.push)+len(p.pull) == 0 {
		return nil
	}
	stored, err := ms.stored(ctx, m)
	if err != nil {
		return err
	}
	for _, name := range p.push {
		if s, ok := stored[name]; ok && s.size == local[name].size {
			m.base[name] = version{local[name], s}
		}
	}
	if !pulled || len(p.pull) == 0 {
		return nil
	}
	if local, _, err = ms.local(ctx, m); err != nil {
		return err
	}
	for _, name := range p.pull {
		l, here := local[name]
		if s, ok := stored[name]; ok && here && s.size == l.size {
			m.base[name] = version{l, s}
		}
	}
	return nil
}
