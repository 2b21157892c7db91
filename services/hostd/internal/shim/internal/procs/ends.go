package procs

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/output"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/users"
	"github.com/millrace/millrace/services/hostd/internal/stdio"
)

// stdioEnds are both sides of a process's stdin, stdout and stderr.
type stdioEnds struct {
	child [3]uintptr
	in    *input
	tty   *os.File
	out   []output.End
	files []*os.File // the shim's
	fds   []int      // the child's
}

func openEnds(spec *process.Spec, acct *users.Account) (*stdioEnds, error) {
	e := &stdioEnds{}
	var err error
	if spec.PTY != nil {
		err = e.openTTY(*spec.PTY, acct)
	} else {
		err = e.openPipes(spec.Stdin, acct)
	}
	if err != nil {
		e.closeChild()
		e.closeParent()
		return nil, kind.Newf(kind.Exhausted, "start", "", "cannot start a process: %s", err)
	}
	return e, nil
}

func (e *stdioEnds) closeChild() {
	for _, fd := range e.fds {
		syscall.Close(fd)
	}
	e.fds = nil
}

func (e *stdioEnds) closeParent() {
	for _, f := range e.files {
		f.Close()
	}
}

func (e *stdioEnds) openPipes(stdin bool, acct *users.Account) error {
	if stdin {
		w, r, err := stdio.Input(acct.UID)
		if err != nil {
			return err
		}
		e.fds = append(e.fds, r)
		e.child[0] = uintptr(r)
		f := e.parentFile(w, "stdin")
		e.in = &input{f: f, fd: w}
	} else {
		fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		e.fds = append(e.fds, fd)
		e.child[0] = uintptr(fd)
	}
	for i, id := range []process.Stream{process.Stdout, process.Stderr} {
		r, w, err := stdio.Output(acct.UID)
		if err != nil {
			return err
		}
		e.fds = append(e.fds, w)
		e.child[i+1] = uintptr(w)
		if err := e.addOutput(id, e.parentFile(r, id.String()), r); err != nil {
			return err
		}
	}
	return nil
}

// parentFile makes a file of the shim; waiting for it does not hold a thread.
func (e *stdioEnds) parentFile(fd int, name string) *os.File {
	unix.SetNonblock(fd, true) //nolint:errcheck // cannot fail on a pipe
	f := os.NewFile(uintptr(fd), name)
	e.files = append(e.files, f)
	return f
}

func (e *stdioEnds) addOutput(id process.Stream, f *os.File, fd int) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	e.out = append(e.out, output.End{ID: id, F: f, RC: rc, FD: fd})
	return nil
}
