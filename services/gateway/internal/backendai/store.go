package backendai

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/filesystem"
	"github.com/millrace/millrace/services/gateway/internal/backendai/files"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// NewFiles returns Config.Files for the sandboxes of o.
func NewFiles(o core.FileOpener) func(core.Principal, sandbox.ID) files.Store {
	return func(p core.Principal, id sandbox.ID) files.Store { return &store{o, p, id} }
}

// store is the files of a session's sandbox.
type store struct {
	ops core.FileOpener
	p   core.Principal
	id  sandbox.ID
}

// with opens a request and closes it after do.
func (s *store) with(ctx context.Context, req *file.Request, do func(*core.Files) error) error {
	return core.WithFiles(ctx, s.ops, s.p, s.id, req, do)
}

// Write implements [files.Store].
func (s *store) Write(ctx context.Context, path string, content io.Reader) error {
	return s.with(ctx, &file.Request{Op: file.OpWrite, Path: path}, func(open *core.Files) error {
		if _, err := io.Copy(struct{ io.Writer }{open}, content); err != nil {
			return err
		}
		if err := open.CloseWrite(); err != nil {
			return err
		}
		_, err := open.Only()
		return err
	})
}

// Read implements [files.Store].
func (s *store) Read(ctx context.Context, path string, limit int64) (e files.Entry, data []byte, err error) {
	err = s.with(ctx, &file.Request{Op: file.OpRead, Path: path}, func(open *core.Files) error {
		raw, err := open.Only()
		if err != nil {
			return err
		}
		if e, err = entry(raw); err != nil {
			return err
		}
		if err := open.Part(file.Range{Length: -1}); err != nil {
			return err
		}
		if data, err = io.ReadAll(io.LimitReader(open, limit+1)); err == nil && int64(len(data)) > limit {
			return kind.Newf(kind.Invalid, "read", "", "%s has more than %d bytes", path, limit)
		}
		return err
	})
	return e, data, err
}

// List implements [files.Store].
func (s *store) List(ctx context.Context, path string) (abs string, all []files.Entry, err error) {
	err = s.with(ctx, &file.Request{Op: file.OpStat, Path: path}, func(open *core.Files) error {
		raw, err := open.Only()
		if err != nil {
			return err
		}
		var e pb.EntryInfo
		err = proto.Unmarshal(raw, &e)
		abs = e.GetPath()
		return err
	})
	if err != nil {
		return "", nil, err
	}
	err = s.with(ctx, &file.Request{Op: file.OpList, Path: path, Depth: 1}, func(open *core.Files) error {
		for {
			raw, err := open.Entry()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			e, err := entry(raw)
			if err != nil {
				return err
			}
			all = append(all, e)
		}
	})
	return abs, all, err
}

// entry decodes the entry of a file.
func entry(raw []byte) (files.Entry, error) {
	var e pb.EntryInfo
	if err := proto.Unmarshal(raw, &e); err != nil {
		return files.Entry{}, kind.Wrap(kind.Internal, "read answer", "", err)
	}
	return files.Entry{
		Name: e.GetName(), Size: e.GetSize(), Mode: e.GetMode() & 0o777, Permissions: e.GetPermissions(),
		Modified: at(e.GetModifiedTime()), Changed: at(e.GetChangedTime()), Accessed: at(e.GetAccessedTime()),
	}, nil
}

func at(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
