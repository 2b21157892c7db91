package workspaces

import (
	"context"
	"errors"
	"io"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/workspace"
)

// Methods of links.
const (
	get = "GET"
	put = "PUT"
)

// InLog is the Store in the log.
type InLog struct {
	*Links

	files *workspace.Store
}

// NewInLog returns the Store in the log. The methods of files may be called once it has been started.
func NewInLog(files *workspace.Store, links *Links) *InLog { return &InLog{links, files} }

// Workspaces returns the workspaces of a tenant.
func (l *InLog) Workspaces(ctx context.Context, tenant string) ([]workspace.Usage, error) {
	err := l.files.Sync(ctx)
	return l.files.Workspaces(tenant), err
}

// Usage returns the size of a workspace.
func (l *InLog) Usage(ctx context.Context, of workspace.Scope) (workspace.Usage, error) {
	if err := l.files.Sync(ctx); err != nil {
		return workspace.Usage{}, err
	}
	u, ok := l.files.Usage(of)
	if !ok {
		return u, workspace.NoWorkspace(of)
	}
	return u, nil
}

// List returns a page of files.
func (l *InLog) List(ctx context.Context, of workspace.Scope, prefix string, after workspace.Path, limit int) (p Page, err error) {
	if err := l.files.Sync(ctx); err != nil {
		return p, err
	}
	p.Files, p.More = l.files.List(of, prefix, after, limit)
	return p, nil
}

// Open opens a file.
func (l *InLog) Open(ctx context.Context, of workspace.Scope, p workspace.Path) (File, error) {
	f, err := l.stat(ctx, of, p)
	if err != nil {
		return File{}, err
	}
	return File{f.Size, f.Modified, io.NopCloser(l.files.Open(ctx, &f))}, nil
}

func (l *InLog) stat(ctx context.Context, of workspace.Scope, p workspace.Path) (workspace.File, error) {
	if err := l.files.Sync(ctx); err != nil {
		return workspace.File{}, err
	}
	return l.files.Stat(of, p)
}

// Put stores a file.
func (l *InLog) Put(ctx context.Context, of workspace.Scope, p workspace.Path, size int64, r io.Reader) error {
	_, err := l.files.Put(ctx, of, p, &exactly{r: r, left: size})
	return err
}

// exactly fails if its reader has another number of bytes than announced.
type exactly struct {
	r    io.Reader
	left int64
}

// Read reads, and fails at the end if bytes are missing.
func (x *exactly) Read(p []byte) (int, error) {
	n, err := x.r.Read(p)
	x.left -= int64(n)
	if x.left < 0 || errors.Is(err, io.EOF) && x.left > 0 {
		return n, wrongSize()
	}
	return n, err
}

func wrongSize() error {
	return kind.New(kind.Invalid, "store file", "", "the file has another size than announced")
}

// Remove removes a file.
func (l *InLog) Remove(ctx context.Context, of workspace.Scope, p workspace.Path) error {
	return l.files.Remove(ctx, of, p)
}

// RemoveAll removes a workspace.
func (l *InLog) RemoveAll(ctx context.Context, of workspace.Scope) error {
	if err := l.files.Sync(ctx); err != nil {
		return err
	}
	return l.files.RemoveAll(ctx, of)
}

// Download returns a link that reads a file.
func (l *InLog) Download(ctx context.Context, base string, of workspace.Scope, p workspace.Path) (string, error) {
	if _, err := l.stat(ctx, of, p); err != nil {
		return "", err
	}
	return l.sign(get, base, of, p), nil
}

// Upload returns a link that writes a file.
func (l *InLog) Upload(_ context.Context, base string, of workspace.Scope, p workspace.Path) (string, error) {
	return l.sign(put, base, of, p), nil
}

// LinkPath is the path of links; the file follows in one segment.
const LinkPath = "/v1/workspace-files/"

func linkURL(base, token string) string { return base + LinkPath + token }
