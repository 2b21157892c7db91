package procs

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/users"
	"github.com/millrace/millrace/services/hostd/internal/stdio"
)

// openTTY opens a terminal. The child's side is blocking, as programs expect; the shim's
// side is not.
func (e *stdioEnds) openTTY(size process.Size, acct *users.Account) error {
	fd, child, err := stdio.Terminal(acct.UID)
	if err != nil {
		return fmt.Errorf("open a terminal: %w", err)
	}
	master := e.parentFile(fd, "tty")
	e.fds = append(e.fds, child)
	if err := setSize(fd, size); err != nil {
		return err
	}
	e.child = [3]uintptr{uintptr(child), uintptr(child), uintptr(child)}
	e.tty, e.in = master, &input{f: master, fd: fd, tty: true}
	return e.addOutput(process.PTY, master, fd)
}

func setSize(tty int, size process.Size) error {
	return unix.IoctlSetWinsize(tty, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(size.Cols), Row: uint16(size.Rows)})
}
