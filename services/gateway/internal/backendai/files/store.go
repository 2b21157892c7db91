package files

import (
	"context"
	"io"
	"path"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// Store is the files of a session.
type Store interface {
	// Write writes a file when all of its content has been read, and its directories.
	Write(ctx context.Context, path string, content io.Reader) error
	// Read returns a regular file of at most limit bytes.
	Read(ctx context.Context, path string, limit int64) (Entry, []byte, error)
	// List returns a directory's entries and its absolute path.
	List(ctx context.Context, path string) (abs string, all []Entry, err error)
}

// Entry is a file.
type Entry struct {
	Name        string
	Size        int64
	Mode        uint32 // permission bits
	Permissions string // as ls prints them
	Modified    time.Time
	Changed     time.Time // zero: unknown
	Accessed    time.Time // zero: unknown
}

const maxPath = 1024

// Check returns a path in its shortest form.
func Check(p string) (string, error) {
	if p == "" || len(p) > maxPath || strings.ContainsRune(p, 0) || path.IsAbs(p) {
		return "", invalid("a path must be relative to the home directory")
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return "", invalid("a path must not contain ..")
		}
	}
	return path.Clean(p), nil
}

func invalid(msg string) error { return kind.New(kind.Invalid, "files", "", msg) }
