//go:build linux

package files

import (
	"bufio"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
)

// Account is whom new files are given to.
type Account struct {
	Home     string // absolute
	UID, GID int
}

// Config says whose files and where. Lookup and Name are required.
type Config struct {
	Root   string                             // the directory that paths begin at; default "/"
	Lookup func(user string) (Account, error) // empty: the default user
	Name   func(group bool, id uint32) string // of an owner or a group
	Times  bool                               // entries have all of their times
	Procs  bool                               // the processes in /proc use these files: what they have open is overwritten, not replaced
	Room   func() error                       // says why nothing more may be written; default: something may
	Turn   func() (end func(), err error)     // waited for by who lists much, which is held meanwhile; default: nobody waits
}

// Server works on files. Its methods may be called concurrently.
type Server struct {
	cfg  Config
	root int
	give bool // what is made can be given away
}

// New opens the root. Close lets go of it.
func New(cfg Config) (*Server, error) {
	if cfg.Root == "" {
		cfg.Root = "/"
	}
	fd, err := unix.Open(cfg.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: cfg.Root, Err: err}
	}
	return &Server{cfg: cfg, root: fd, give: os.Geteuid() == 0}, nil
}

// Close lets go of the root. Nothing may be asked any more.
func (s *Server) Close() error { return unix.Close(s.root) }

// Stream is what a question comes over: a *mux.Stream.
type Stream interface {
	io.ReadWriteCloser
	SetWriteDeadline(t time.Time) error
	Accept()
	Abort(err error)
}

// Serve answers the one question of a stream.
func (s *Server) Serve(st Stream) {
	st.Accept()
	if err := s.serve(st); err != nil {
		st.Abort(err)
		return
	}
	st.Close() //nolint:errcheck // what was written still arrives, or nobody wants it
}

// op is one question at work.
type op struct {
	*Server
	req  file.Request
	who  Account
	path string // absolute and clean
	in   io.Reader
	out  *bufio.Writer
	buf  []byte
	name map[uint64]string     // of owners and groups that were looked up
	held int                   // names of directories that are being listed
	by   func(time.Time) error // when the answer must be read
	end  func()                // of the turn that it has; nil: it has none
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
	o := &op{Server: s, req: req, in: st, out: bufio.NewWriterSize(st, writeBuffer), by: st.SetWriteDeadline, name: make(map[uint64]string)}
	if o.who, err = s.cfg.Lookup(req.User); err != nil {
		return err
	}
	if o.path, err = Resolve(o.who.Home, req.Path); err != nil {
		return err
	}
	if err := o.do(); err != nil {
		return errorOf(o.path, err)
	}
	return o.out.Flush()
}

func (s *Server) room() error {
	if s.cfg.Room == nil {
		return nil
	}
	return s.cfg.Room()
}

func (o *op) do() error {
	switch o.req.Op {
	case file.OpStat:
		return o.sendStat(o.path)
	case file.OpList:
		return o.list()
	case file.OpMakeDir:
		if err := o.room(); err != nil {
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
	}
	return kind.New(kind.Unimplemented, "file", "", "no such operation")
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

// errorOf tells what a failed operation on a path means to its client.
func errorOf(path string, err error) error {
	var k *kind.Error
	var errno unix.Errno
	switch {
	case errors.As(err, &k):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return kind.New(kind.Deadline, "file", "", "the answer was not read in time")
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
