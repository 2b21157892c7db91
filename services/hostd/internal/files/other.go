//go:build !linux

package files

import (
	"io"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
)

// Account is whom new files are given to.
type Account struct {
	Home     string // absolute
	UID, GID int
}

// Config says whose files and where.
type Config struct {
	Root   string
	Lookup func(user string) (Account, error)
	Name   func(group bool, id uint32) string
	Times  bool
	Procs  bool
	Room   func() error
	Turn   func() (end func(), err error)
}

// Server refuses: only Linux walks a path within a root by itself (openat2), and a
// walk that is made of steps has to be written for the others yet.
type Server struct{}

// New is a Server.
func New(Config) (*Server, error) { return &Server{}, nil }

// Close does nothing.
func (*Server) Close() error { return nil }

// Stream is what a question comes over.
type Stream interface {
	io.ReadWriteCloser
	Accept()
	Abort(err error)
}

// Serve refuses.
func (*Server) Serve(s Stream) {
	s.Accept()
	s.Abort(kind.New(kind.Unimplemented, "files", "", "the file interface is not there on this system yet"))
}

// Watcher is none.
type Watcher struct{}

// Watch refuses.
func (*Server) Watch(*file.Watch) (*Watcher, error) {
	return nil, kind.New(kind.Unimplemented, "watch", "", "the file interface is not there on this system yet")
}

// Run does nothing.
func (*Watcher) Run(io.Writer) error { return nil }

// Stop does nothing.
func (*Watcher) Stop() {}
