package workspaces

import (
	"context"
	"io"
	"time"

	"github.com/millrace/millrace/events/workspace"
)

// LinkFor is how long a link is valid.
const LinkFor = time.Hour

// File is a file that can be read.
type File struct {
	Size     int64
	Modified time.Time
	Body     io.ReadCloser // a read that ends in io.EOF was complete
}

// Page is a part of the list of files, in the order of their paths.
type Page struct {
	Files []workspace.File
	More  bool // files follow the last one
}

// Store keeps the files of workspaces. An upload is visible when it is complete, as a whole; of two
// uploads to a path the one that ends last is valid. A workspace exists while it has files.
//
// Methods return NotFound for what does not exist, Exhausted if there is no space, and Unavailable if
// the store cannot be reached.
type Store interface {
	Workspaces(ctx context.Context, tenant string) ([]workspace.Usage, error)
	Usage(ctx context.Context, of workspace.Scope) (workspace.Usage, error)
	List(ctx context.Context, of workspace.Scope, prefix string, after workspace.Path, limit int) (Page, error)

	// Open opens a file. ctx bounds the reads of its body.
	Open(ctx context.Context, of workspace.Scope, p workspace.Path) (File, error)

	// Put stores a file of size bytes. If r fails or has another number of bytes, nothing is stored.
	Put(ctx context.Context, of workspace.Scope, p workspace.Path, size int64, r io.Reader) error

	Remove(ctx context.Context, of workspace.Scope, p workspace.Path) error
	RemoveAll(ctx context.Context, of workspace.Scope) error

	// Download returns a link that reads a file, and Upload one that writes it with PUT. base is the
	// URL of this gateway, as the client reaches it.
	Download(ctx context.Context, base string, of workspace.Scope, p workspace.Path) (url string, err error)
	Upload(ctx context.Context, base string, of workspace.Scope, p workspace.Path) (url string, err error)
}
