package backend

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

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
	ops core.FileOpener
	p   core.Principal
	sbx sandbox.ID

	mu      sync.Mutex
	handles *handles // nil without an open handle
}

// Files implements [session.Filesystem]. Operations that c allows on every file are not confined,
// so that they work where the sandbox cannot confine any.
func (fs *filesystem) Files(c *process.Confinement) (session.Files, error) {
	f := &files{filesystem: fs}
	if c == nil {
		return f, nil
	}
	writesAll := slices.Contains(c.Write, "/")
	if len(c.Deny) > 0 || !writesAll && !slices.Contains(c.Read, "/") {
		f.reads = c
	}
	if len(c.Deny) > 0 || !writesAll || len(c.Read) > 0 {
		f.writes = c
	}
	return f, nil
}

// files are the operations on the files of a sandbox.
type files struct {
	*filesystem
	reads, writes *process.Confinement // of reading and of changing files; nil: none
}

// with sends a request and calls do with the response.
func (f *files) with(ctx context.Context, req *file.Request, do func(*core.Files) error) error {
	return core.WithFiles(ctx, f.ops, f.p, f.sbx, req, do)
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

// Stat implements [session.Files].
func (f *files) Stat(ctx context.Context, p string) (session.FileInfo, error) {
	e, err := f.entry(ctx, &file.Request{Op: file.OpResolve, Path: p, Confine: f.reads})
	if err != nil {
		return session.FileInfo{}, err
	}
	return session.FileInfo{
		Dir: isDir(e), Regular: isFile(e), Link: e.SymlinkTarget != nil, Size: e.GetSize(),
		Created: timeOf(e.GetCreatedTime()), Modified: timeOf(e.GetModifiedTime()),
	}, nil
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// RealPath implements [session.RealPather].
func (f *files) RealPath(ctx context.Context, p string) (string, error) {
	e, err := f.entry(ctx, &file.Request{Op: file.OpResolve, Path: p, Confine: f.reads})
	return e.GetPath(), err
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
	err := f.with(ctx, &file.Request{Op: file.OpRead, Path: p, Confine: f.reads}, func(open *core.Files) error {
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
	return f.with(ctx, &file.Request{Op: file.OpWrite, Path: p, Single: true, Confine: f.writes}, func(open *core.Files) error {
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
	_, err := f.entry(ctx, &file.Request{Op: file.OpMakeDir, Path: p, Force: parents, Single: !parents, Confine: f.writes})
	return err
}

// Copy implements [session.Copier].
func (f *files) Copy(ctx context.Context, from, to string, recursive bool) error {
	_, err := f.entry(ctx, &file.Request{Op: file.OpCopy, Path: from, To: to, Single: !recursive, Confine: f.writes})
	return err
}

// List implements [session.Files].
func (f *files) List(ctx context.Context, p string, limit int) (out []session.DirEntry, more bool, err error) {
	err = f.with(ctx, &file.Request{Op: file.OpList, Path: p, Confine: f.reads}, func(open *core.Files) error {
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
	req := &file.Request{Op: file.OpRemove, Path: p, Single: !recursive, Exists: !force, Confine: f.writes}
	return f.with(ctx, req, (*core.Files).Done)
}

// Walk implements [session.Files].
func (f *files) Walk(ctx context.Context, p string, o *session.WalkOptions, visit func(session.Found) bool) error {
	req := &file.Request{
		Op: file.OpWalk, Path: p, Depth: o.Depth, MaxDirs: o.Directories, MaxEntries: o.Entries,
		Follow: o.Follow, SkipHidden: o.SkipHidden, Confine: f.reads,
	}
	return f.with(ctx, req, func(open *core.Files) error {
		for {
			raw, err := open.Entry()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			found, err := file.ParseFound(raw)
			if err != nil || !visit(session.Found(found)) {
				return err
			}
		}
	})
}

// WatchMissing implements [session.MissingWatcher]. A watch that breaks reports a change: the
// client then looks, and watches again.
func (f *files) WatchMissing(ctx context.Context, missing []string, present string) (changed func(), err error) {
	open, err := f.ops.OpenFiles(ctx, f.p, f.sbx, &file.Request{Op: file.OpAwait, Sources: missing, To: present})
	if err != nil {
		return nil, err
	}
	_, err = open.Entry()
	if err != nil {
		open.Close()
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return nil, err
	}
	return func() {
		defer open.Close()
		open.Entry() //nolint:errcheck // its end is the event
	}, nil
}
