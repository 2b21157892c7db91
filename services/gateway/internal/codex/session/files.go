package session

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/codex/fileuri"
	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
)

const (
	// maxFile is the size of the largest file in one answer: in base64 it fits into a frame.
	maxFile = 11 << 20
	// maxListed is the maximum number of entries of fs/readDirectory.
	maxListed = 1 << 16
	// maxWatches is the maximum number of watches of a connection: each has a stream.
	maxWatches = 8
)

func notOffered(method string) error {
	return jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "method %s is not offered", method)
}

// parseFile decodes a call of an fs method.
func (c *conn) parseFile(method string, m *jsonrpc.Message) (*request, error) {
	switch method {
	case protocol.FSCopy:
		p, err := protocol.ParseCopy(m.Params)
		return plain(func(ctx context.Context) (any, error) { return c.copy(ctx, &p) }), err
	case protocol.FSOpen, protocol.FSReadBlock, protocol.FSWriteBlock, protocol.FSClose:
		p, err := protocol.ParseHandle(method, m.Params)
		return &request{run: func(ctx context.Context, r *request) (any, error) { return c.onHandle(ctx, r, method, &p) }}, err
	case protocol.FSWatchMissing:
		p, err := protocol.ParseWatch(m.Params)
		return &request{run: func(ctx context.Context, r *request) (any, error) { return c.watchMissing(ctx, r, &p) }}, err
	}
	p, err := protocol.ParseFile(method, m.Params)
	return &request{run: func(ctx context.Context, r *request) (any, error) { return c.onFile(ctx, r, method, &p) }}, err
}

// files returns the sandbox's files as a policy allows them to be used.
func (c *conn) files(method string, policy *protocol.Sandbox) (Files, error) {
	if c.services.Filesystem == nil {
		return nil, notOffered(method)
	}
	confinement, err := policy.Resolve("/tmp")
	if err != nil {
		return nil, err
	}
	f, err := c.services.Filesystem.Files(confinement)
	if kind.Is(err, kind.Unimplemented) {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "%s", kind.Message(err))
	}
	return f, err
}

// onFile serves the fs methods with a path.
func (c *conn) onFile(ctx context.Context, r *request, method string, p *protocol.FileParams) (any, error) {
	f, err := c.files(method, p.Sandbox)
	if err != nil {
		return nil, err
	}
	result, err := c.fileMethod(ctx, r, f, method, p)
	return result, fileError(method, p.Path, err)
}

func (c *conn) fileMethod(ctx context.Context, r *request, f Files, method string, p *protocol.FileParams) (any, error) {
	name := p.Path.Name
	or := func(b *bool) bool { return b == nil || *b } // true unless the client says otherwise
	switch method {
	case protocol.FSReadFile:
		return c.readFile(ctx, r, f, p)
	case protocol.FSWriteFile:
		data, err := p.Content()
		if err != nil {
			return nil, err
		}
		return protocol.Empty{}, f.Write(ctx, name, data)
	case protocol.FSCreateDirectory:
		return protocol.Empty{}, f.MakeDir(ctx, name, or(p.Recursive))
	case protocol.FSRemove:
		return protocol.Empty{}, f.Remove(ctx, name, or(p.Recursive), or(p.Force))
	case protocol.FSGetMetadata:
		info, err := f.Stat(ctx, name)
		return protocol.Metadata{
			IsDirectory: info.Dir, IsFile: info.Regular, IsSymlink: info.Link, Size: info.Size,
			CreatedAtMS: milliseconds(info.Created), ModifiedAtMS: milliseconds(info.Modified),
		}, err
	case protocol.FSCanonicalize:
		resolver, ok := f.(RealPather)
		if !ok {
			return nil, notOffered(method)
		}
		at, err := resolver.RealPath(ctx, name)
		return protocol.RealPath{Path: fileuri.Format(at, p.Path.Form)}, err
	case protocol.FSReadDirectory:
		return c.readDirectory(ctx, r, f, name)
	case protocol.FSWalk:
		if err := c.takeLarge(ctx, r); err != nil {
			return nil, err
		}
		return walk(ctx, f, p.Path, p.Options)
	}
	return nil, notOffered(method)
}

func milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// readFile serves fs/readFile.
func (c *conn) readFile(ctx context.Context, r *request, f Files, p *protocol.FileParams) (any, error) {
	if err := c.takeLarge(ctx, r); err != nil {
		return nil, err
	}
	limit := int64(maxFile)
	if p.MaxBytes != nil {
		limit = int64(min(*p.MaxBytes, maxFile))
	}
	info, err := f.Stat(ctx, p.Path.Name)
	if err != nil {
		return nil, err
	}
	if info.Regular {
		if b := c.cfg.Budget; b != nil {
			release, err := b.Reserve(int(3 * min(info.Size, limit))) // the data, and its encoding
			if err != nil {
				return nil, err
			}
			defer release()
		}
	}
	data, err := f.Read(ctx, p.Path.Name, limit)
	if kind.Is(err, kind.Exhausted) {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "file is too large to read: the limit is %d bytes; use fs/open", limit)
	}
	if err != nil {
		return nil, err
	}
	if data == nil {
		data = []byte{}
	}
	return encode(r.id, protocol.FileData{Data: data})
}

func (c *conn) readDirectory(ctx context.Context, r *request, f Files, name string) (any, error) {
	if err := c.takeLarge(ctx, r); err != nil {
		return nil, err
	}
	list, more, err := f.List(ctx, name, maxListed)
	if err != nil {
		return nil, err
	}
	if more {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "the directory has more than %d entries; use fs/walk", maxListed)
	}
	out := protocol.Directory{Entries: make([]protocol.DirEntry, 0, len(list))}
	for _, e := range list {
		out.Entries = append(out.Entries, protocol.DirEntry{FileName: e.Name, IsDirectory: e.Dir, IsFile: e.Regular})
	}
	return out, nil
}

// copy serves fs/copy.
func (c *conn) copy(ctx context.Context, p *protocol.CopyParams) (any, error) {
	f, err := c.files(protocol.FSCopy, p.Sandbox)
	if err != nil {
		return nil, err
	}
	copier, ok := f.(Copier)
	if !ok {
		return nil, notOffered(protocol.FSCopy)
	}
	info, err := f.Stat(ctx, p.From.Name)
	switch {
	case err != nil:
		return nil, fileError(protocol.FSCopy, p.From, err)
	case info.Dir && !info.Link && !p.Recursive:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "fs/copy requires recursive: true when sourcePath is a directory")
	case info.Dir && !info.Link && fileuri.Within(p.From.Name, p.To.Name):
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "fs/copy cannot copy a directory to itself or one of its descendants")
	}
	return protocol.Empty{}, fileError(protocol.FSCopy, p.To, copier.Copy(ctx, p.From.Name, p.To.Name, p.Recursive))
}

// watchMissing serves fs/watchMissing.
func (c *conn) watchMissing(ctx context.Context, r *request, p *protocol.WatchParams) (any, error) {
	f, err := c.files(protocol.FSWatchMissing, nil)
	if err != nil {
		return nil, err
	}
	watcher, ok := f.(MissingWatcher)
	if !ok {
		return nil, notOffered(protocol.FSWatchMissing)
	}
	missing := make([]string, len(p.Missing))
	for i := range p.Missing {
		missing[i] = p.Missing[i].Name
	}
	present := ""
	if p.Present != nil {
		present = p.Present.Name
	}
	if c.watches.Add(1) > maxWatches {
		c.watches.Add(-1)
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "more than %d watches", maxWatches)
	}
	changed, err := watcher.WatchMissing(ctx, missing, present)
	if err != nil || changed == nil {
		c.watches.Add(-1)
		return protocol.Watching{}, err
	}
	r.after = func() {
		c.spawn("codex watch", func() {
			defer c.watches.Add(-1)
			changed()
			if ctx.Err() == nil {
				_ = c.out.send(jsonrpc.AppendNotification(nil, protocol.NoteMissingChanged, []byte(`{"watchId":`+p.WatchID.String()+`}`)))
			}
		})
	}
	return protocol.Watching{Watching: true}, nil
}

// fileError returns the error of a file operation for the client.
func fileError(method string, p protocol.Path, err error) error {
	shown := fileuri.Format(p.Name, p.Form)
	switch kind.Of(err) {
	case kind.NotFound:
		return jsonrpc.Errorf(jsonrpc.CodeNotFound, "path `%s` does not exist", shown)
	case kind.Invalid, kind.Precondition:
		if method == protocol.FSReadFile || method == protocol.FSOpen {
			return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "path `%s` is not a file", shown)
		}
		return &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: kind.Message(err)}
	case kind.Unimplemented:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the requested sandbox policy cannot be enforced for files in this sandbox")
	default:
	}
	return err
}
