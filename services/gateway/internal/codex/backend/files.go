package backend

import (
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/filesystem"
	"github.com/millrace/millrace/services/gateway/internal/codex/session"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// filesystem opens the files of a sandbox.
type filesystem struct {
	ops FileOpener
	p   core.Principal
	sbx sandbox.ID
}

// Files implements [session.Filesystem]. A policy that restricts reads cannot be enforced; one
// that restricts writes allows none.
func (fs *filesystem) Files(c *process.Confinement) (session.Files, error) {
	f := &files{filesystem: fs}
	if c == nil {
		return f, nil
	}
	readable := slices.Contains(c.Read, "/") || slices.Contains(c.Write, "/")
	if len(c.Deny) > 0 || !readable {
		return nil, kind.New(kind.Unimplemented, "files", string(fs.sbx), "the requested sandbox policy cannot be enforced for files here")
	}
	f.readOnly = !slices.Contains(c.Write, "/") || len(c.Read) > 0
	return f, nil
}

// files are the operations on the files of a sandbox.
type files struct {
	*filesystem
	readOnly bool
}

// mayWrite returns an error if a policy restricts writes.
func (f *files) mayWrite() error {
	if f.readOnly {
		return kind.New(kind.Unimplemented, "files", string(f.sbx), "the requested sandbox policy cannot be enforced for writes here")
	}
	return nil
}

// with sends a request and calls do with the response.
func (f *files) with(ctx context.Context, req *file.Request, do func(*core.Files) error) error {
	ctx, cancel := context.WithTimeout(ctx, core.FilesTimeout)
	defer cancel()
	open, err := f.ops.OpenFiles(ctx, f.p, f.sbx, req)
	if err != nil {
		return err
	}
	defer open.Close()
	if err = do(open); err != nil && ctx.Err() != nil {
		return ctx.Err() // the stream's own error reports only a cut
	}
	return err
}

// entry sends a request that has one entry as its response.
func (f *files) entry(ctx context.Context, req *file.Request) (*pb.EntryInfo, error) {
	e := &pb.EntryInfo{}
	return e, f.with(ctx, req, func(open *core.Files) error {
		raw, err := open.Only()
		if err != nil {
			return err
		}
		return proto.Unmarshal(raw, e)
	})
}

func (f *files) lstat(ctx context.Context, p string) (*pb.EntryInfo, error) {
	return f.entry(ctx, &file.Request{Op: file.OpStat, Path: p})
}

// Stat implements [session.Files]. An entry of a link has the target's type and the link's size.
func (f *files) Stat(ctx context.Context, p string) (session.FileInfo, error) {
	e, err := f.lstat(ctx, p)
	if err != nil {
		return session.FileInfo{}, err
	}
	link := e.SymlinkTarget != nil
	if link {
		if dangling(e) {
			return session.FileInfo{}, kind.Newf(kind.NotFound, "stat", "", "path does not exist: %s", p)
		}
		if e, err = f.lstat(ctx, e.GetSymlinkTarget()); err != nil {
			return session.FileInfo{}, err
		}
	}
	info := session.FileInfo{Dir: isDir(e), Regular: isFile(e), Link: link, Size: e.GetSize()}
	if t := e.GetModifiedTime(); t != nil {
		info.Modified = time.Unix(t.GetSeconds(), int64(t.GetNanos()))
	}
	return info, nil
}

func isDir(e *pb.EntryInfo) bool  { return e.GetType() == pb.FileType_FILE_TYPE_DIRECTORY }
func isFile(e *pb.EntryInfo) bool { return e.GetType() == pb.FileType_FILE_TYPE_FILE }

// dangling reports whether a link leads nowhere: its target is then its own path.
func dangling(e *pb.EntryInfo) bool {
	return e.SymlinkTarget != nil && e.GetSymlinkTarget() == e.GetPath()
}

// Read implements [session.Files].
func (f *files) Read(ctx context.Context, p string, limit int64) ([]byte, error) {
	var data []byte
	err := f.with(ctx, &file.Request{Op: file.OpRead, Path: p}, func(open *core.Files) error {
		raw, err := open.Only()
		if err != nil {
			return err
		}
		e := &pb.EntryInfo{}
		if err := proto.Unmarshal(raw, e); err != nil {
			return err
		}
		if e.SymlinkTarget == nil && e.GetSize() > limit {
			return tooLarge(p, limit)
		}
		if err := open.Part(file.Range{Length: -1}); err != nil {
			return err
		}
		if data, err = io.ReadAll(io.LimitReader(open, limit+1)); err == nil && int64(len(data)) > limit {
			err = tooLarge(p, limit)
		}
		return err
	})
	return data, err
}

func tooLarge(p string, limit int64) error {
	return kind.Newf(kind.Exhausted, "read", "", "%s has more than %d bytes", p, limit)
}

// Write implements [session.Files].
func (f *files) Write(ctx context.Context, p string, data []byte) error {
	if err := f.mayWrite(); err != nil {
		return err
	}
	if _, err := f.Stat(ctx, path.Dir(p)); err != nil { // a write makes missing directories
		return err
	}
	return f.with(ctx, &file.Request{Op: file.OpWrite, Path: p}, func(open *core.Files) error {
		if _, err := open.Write(data); err != nil {
			return err
		}
		if err := open.CloseWrite(); err != nil {
			return err
		}
		_, err := open.Only()
		return err
	})
}

// MakeDir implements [session.Files].
func (f *files) MakeDir(ctx context.Context, p string, parents bool) error {
	if err := f.mayWrite(); err != nil {
		return err
	}
	if !parents {
		if _, err := f.Stat(ctx, path.Dir(p)); err != nil {
			return err
		}
	}
	_, err := f.entry(ctx, &file.Request{Op: file.OpMakeDir, Path: p, Force: parents})
	return err
}

// List implements [session.Files].
func (f *files) List(ctx context.Context, p string, limit int) (out []session.DirEntry, more bool, err error) {
	err = f.with(ctx, &file.Request{Op: file.OpList, Path: p}, func(open *core.Files) error {
		for {
			raw, err := open.Entry()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			e := &pb.EntryInfo{}
			if err := proto.Unmarshal(raw, e); err != nil {
				return err
			}
			if dangling(e) {
				continue
			}
			if len(out) == limit {
				more = true
				return nil
			}
			out = append(out, session.DirEntry{Name: e.GetName(), Dir: isDir(e), Regular: isFile(e), Link: e.SymlinkTarget != nil})
		}
	})
	return out, more, err
}

// Remove implements [session.Files].
func (f *files) Remove(ctx context.Context, p string, recursive, force bool) error {
	if err := f.mayWrite(); err != nil {
		return err
	}
	if !recursive || !force {
		e, err := f.lstat(ctx, p)
		switch {
		case kind.Is(err, kind.NotFound) && force:
			return nil
		case err != nil:
			return err
		case !recursive && isDir(e) && e.SymlinkTarget == nil:
			all, _, err := f.List(ctx, p, 1)
			if err != nil {
				return err
			}
			if len(all) > 0 {
				return kind.Newf(kind.Conflict, "remove", "", "directory is not empty: %s", p)
			}
		}
	}
	return f.with(ctx, &file.Request{Op: file.OpRemove, Path: p}, (*core.Files).Done)
}

// maxLinks is the maximum number of links in a path.
const maxLinks = 40

// RealPath implements [session.RealPather]. The targets of links in entries are resolved, so
// that a path is resolved one name at a time.
func (f *files) RealPath(ctx context.Context, p string) (string, error) {
	links := 0
	for at := "/"; at != p; {
		rest := p[len(at):]
		if at != "/" {
			rest = rest[1:]
		}
		name := rest
		if i := slices.Index([]byte(rest), '/'); i >= 0 {
			name = rest[:i]
		}
		next := path.Join(at, name)
		e, err := f.lstat(ctx, next)
		switch {
		case err != nil:
			return "", err
		case e.SymlinkTarget == nil:
			at = next
		case dangling(e):
			return "", kind.Newf(kind.NotFound, "resolve", "", "path does not exist: %s", p)
		default:
			if links++; links > maxLinks {
				return "", kind.Newf(kind.Precondition, "resolve", "", "too many links: %s", p)
			}
			at = path.Clean(e.GetSymlinkTarget())
			p = path.Join(at, rest[len(name):])
		}
	}
	return p, nil
}

// OpenHandle implements [session.HandleOpener].
func (f *files) OpenHandle(ctx context.Context, p string) (session.ReadHandle, error) {
	info, err := f.Stat(ctx, p)
	if err != nil {
		return nil, err
	}
	if !info.Regular {
		return nil, kind.Newf(kind.Invalid, "open", "", "path is not a file: %s", p)
	}
	return &readHandle{f: f, path: p, info: info}, nil
}

// readHandle reads blocks of a file, each by a request of its own. It fails if the file was
// changed since it was opened, so that blocks of two versions are never mixed.
type readHandle struct {
	f    *files
	path string
	info session.FileInfo
}

// ReadAt implements [session.ReadHandle].
func (h *readHandle) ReadAt(ctx context.Context, p []byte, offset int64) (int, error) {
	left := h.info.Size - offset
	if left <= 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), left)]
	n := 0
	err := h.f.with(ctx, &file.Request{Op: file.OpRead, Path: h.path}, func(open *core.Files) error {
		raw, err := open.Only()
		if err != nil {
			return err
		}
		e := &pb.EntryInfo{}
		if err := proto.Unmarshal(raw, e); err != nil {
			return err
		}
		if t := e.GetModifiedTime(); !h.info.Link && (e.GetSize() != h.info.Size || !time.Unix(t.GetSeconds(), int64(t.GetNanos())).Equal(h.info.Modified)) {
			return kind.Newf(kind.Conflict, "read", "", "the file was changed since it was opened: %s", h.path)
		}
		if err := open.Part(file.Range{Offset: offset, Length: int64(len(p))}); err != nil {
			return err
		}
		n, err = io.ReadFull(open, p)
		return err
	})
	if err == nil && int64(n) == left {
		err = io.EOF
	}
	return n, err
}

// Close implements [session.ReadHandle].
func (*readHandle) Close() error { return nil }
