//go:build linux

package files

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Account is the owner of new files.
type Account struct {
	Home     string // absolute
	UID, GID int
}

// Config configures a Server. Lookup and Name are required.
type Config struct {
	Root     string                             // directory that paths start at; default "/"
	Lookup   func(user string) (Account, error) // account of a user; "": the default user
	Name     func(group bool, id uint32) string // name of an owner or a group
	Times    bool                               // whether entries have all of their times
	Procs    bool                               // whether the processes in /proc use these files: files that they have open are overwritten, not replaced
	DiskFree func() error                       // returns why nothing more may be written; default: nil
	Turn     func() (end func(), err error)     // waits for a turn to list a large directory; default: no wait
	Confine  func(*process.Confinement) error   // restricts the calling thread for good; nil: requests with a confinement fail
}

// Server performs file operations. Its methods may be called concurrently.
type Server struct {
	cfg  Config
	root int
	give bool // whether new files can be given to other users
}

// New opens the root. Close closes it.
func New(cfg Config) (*Server, error) {
	cfg.Root = cmp.Or(cfg.Root, "/")
	fd, err := unix.Open(cfg.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: cfg.Root, Err: err}
	}
	return &Server{cfg: cfg, root: fd, give: os.Geteuid() == 0}, nil
}

// Close closes the root. No method may be called afterwards.
func (s *Server) Close() error { return unix.Close(s.root) }

// Stream carries one request and its response: a *mux.Stream.
type Stream interface {
	io.ReadWriteCloser
	SetWriteDeadline(t time.Time) error
	Accept()
	Abort(err error)
	// AfterBreak calls f when the stream is aborted, unless stop was called before.
	AfterBreak(f func()) (stop func())
}

// Serve serves the one request of a stream.
func (s *Server) Serve(st Stream) {
	st.Accept()
	if err := s.serve(st); err != nil {
		st.Abort(err)
		return
	}
	st.Close()
}

// op is one request in progress.
type op struct {
	*Server
	req         file.Request
	who         Account
	path        string // absolute and clean
	in          io.Reader
	out         *bufio.Writer
	buf         []byte
	name        map[uint64]string     // owners and groups that were looked up
	listed      int                   // number of names of directories that are being listed
	setDeadline func(time.Time) error // sets the deadline for reading the response
	end         func()                // ends the current turn; nil: none
	broken      chan struct{}         // closed when the client aborts the request
}

const writeBuffer = 64 << 10

func (s *Server) serve(st Stream) error {
	raw, err := file.ReadFrame(st, nil)
	if err != nil {
		return err
	}
	req, err := file.Parse(raw)
	if err != nil {
		return err
	}
	o := &op{Server: s, req: req, in: st, out: bufio.NewWriterSize(st, writeBuffer), setDeadline: st.SetWriteDeadline, name: make(map[uint64]string), broken: make(chan struct{})}
	defer st.AfterBreak(func() { close(o.broken) })()
	if o.who, err = s.cfg.Lookup(req.User); err != nil {
		return err
	}
	if o.path, err = Resolve(o.who.Home, req.Path); err != nil {
		return err
	}
	if err := s.confined(req.Confine, o.do); err != nil {
		return errorOf(o.path, err)
	}
	return o.out.Flush()
}

// confined runs f on a thread that is restricted by c. The thread ends with its restrictions:
// its goroutine stays locked to it.
func (s *Server) confined(c *process.Confinement, f func() error) error {
	switch {
	case c == nil:
		return f()
	case s.cfg.Confine == nil:
		return kind.New(kind.Unimplemented, "confine", "", "file operations cannot be confined here")
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := s.cfg.Confine(c)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// aborted returns an error once the client has aborted the request.
func (o *op) aborted() error {
	select {
	case <-o.broken:
		return kind.New(kind.Canceled, "file", "", "the client aborted the request")
	default:
		return nil
	}
}

func (s *Server) diskFree() error {
	if s.cfg.DiskFree == nil {
		return nil
	}
	return s.cfg.DiskFree()
}

func (o *op) do() error {
	switch o.req.Op {
	case file.OpStat:
		return o.sendStat(o.path)
	case file.OpList:
		return o.list()
	case file.OpMakeDir:
		if err := o.diskFree(); err != nil {
			return err
		}
		return o.makeDir()
	case file.OpMove:
		return o.move()
	case file.OpRemove:
		return o.remove()
	case file.OpRead:
		return o.read()
	case file.OpWrite:
		return o.write()
	case file.OpCompose:
		return o.compose()
	case file.OpChange:
		return o.change()
	case file.OpUnpack:
		return o.unpack()
	case file.OpCopy:
		return copyPath(o)
	case file.OpResolve:
		return resolve(o)
	case file.OpWalk:
		return find(o)
	case file.OpHandles:
		return handles(o)
	case file.OpAwait:
		return await(o)
	}
	return kind.New(kind.Unimplemented, "file", "", "unknown operation")
}

// send sends an entry.
func (o *op) send(e *entry) error {
	o.buf = o.appendEntry(o.buf[:0], e)
	frame := file.AppendFrame(nil, o.buf)
	_, err := o.out.Write(frame)
	return err
}

func (o *op) sendStat(path string) error {
	e, err := o.stat(path)
	if err != nil {
		return err
	}
	return o.send(&e)
}

// errorOf returns the client's error of a failed operation on a path.
func errorOf(path string, err error) error {
	var k *kind.Error
	var errno unix.Errno
	switch {
	case errors.As(err, &k):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return kind.New(kind.Deadline, "file", "", "the response was not read in time")
	case !errors.As(err, &errno):
		return kind.Wrap(kind.Internal, "file", path, err)
	}
	fail := func(k kind.Kind, text string) error {
		return &kind.Error{Op: "file", Kind: k, Msg: text, Err: err}
	}
	switch errno {
	case unix.ENOENT:
		return fail(kind.NotFound, "path '"+path+"' does not exist")
	case unix.EACCES, unix.EPERM, unix.EROFS, unix.EXDEV:
		return fail(kind.Denied, "path '"+path+"': "+errno.Error())
	case unix.EEXIST:
		return fail(kind.Conflict, "path '"+path+"': "+errno.Error())
	case unix.ENOTDIR, unix.ENAMETOOLONG, unix.EINVAL, unix.ENOTEMPTY, unix.EISDIR, unix.ENXIO, unix.ENODEV, unix.EFBIG:
		return fail(kind.Invalid, "path '"+path+"': "+errno.Error())
	case unix.ELOOP:
		return fail(kind.Precondition, "path '"+path+"': too many levels of symbolic links")
	case unix.EBUSY, unix.ETXTBSY:
		return fail(kind.Precondition, "path '"+path+"': "+errno.Error())
	case unix.ENOSPC, unix.EDQUOT:
		return fail(kind.Exhausted, "not enough disk space available")
	case unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EIO:
		return fail(kind.Unavailable, "path '"+path+"': "+errno.Error())
	case unix.EOPNOTSUPP:
		return fail(kind.Unimplemented, "path '"+path+"': "+errno.Error())
	}
	return kind.Wrap(kind.Internal, "file", path, err)
}
