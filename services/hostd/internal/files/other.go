//go:build !linux

package files

import (
	"io"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Account is the owner of new files.
type Account struct {
	Home     string // absolute
	UID, GID int
}

// Config configures a Server.
type Config struct {
	Root     string
	Lookup   func(user string) (Account, error)
	Name     func(group bool, id uint32) string
	Times    bool
	Procs    bool
	DiskFree func() error
	Turn     func() (end func(), err error)
	Confine  func(*process.Confinement) error
}

// Server refuses all requests: only on Linux the kernel resolves a path within a root
// (openat2); the other systems need a resolution in steps, which is not written yet.
type Server struct{}

// New returns a Server.
func New(Config) (*Server, error) { return &Server{}, nil }

// Close does nothing.
func (*Server) Close() error { return nil }

// Stream carries one request and its response.
type Stream interface {
	io.ReadWriteCloser
	Accept()
	Abort(err error)
}

// Serve refuses the request.
func (*Server) Serve(s Stream) {
	s.Accept()
	s.Abort(kind.New(kind.Unimplemented, "files", "", "files are not supported on this system yet"))
}

// Watcher is not supported on this system.
type Watcher struct{}

// Watch returns Unimplemented.
func (*Server) Watch(*file.Watch) (*Watcher, error) {
	return nil, kind.New(kind.Unimplemented, "watch", "", "files are not supported on this system yet")
}

// Run does nothing.
func (*Watcher) Run(io.Writer) error { return nil }

// Stop does nothing.
func (*Watcher) Stop() {}
