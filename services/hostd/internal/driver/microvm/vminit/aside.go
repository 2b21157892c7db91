//go:build linux

package vminit

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/serial"
)

// A guest's files are told by a program of their own, which the shim starts when hostd
// dials aside: all others, the shim among them, stand still meanwhile.

// The descriptors that the program inherits.
const (
	packPort    = 3 + iota // written to, and polled
	packWritten            // the directory of what was written
	packGroups             // that of all cgroups
	packDone               // gets a byte when all is written
)

// Aside answers those who dial aside at the stream whose descriptor is out with
// the guest's files; see serial.ListenAside. It is for the first process of a
// guest, which waits for all its children, and for what PackFlag says.
func Aside(flag string, out uintptr) (func(nonce []byte) error, error) {
	var dirs [2]uint64
	if n, err := fmt.Sscanf(flag, "%d,%d", &dirs[0], &dirs[1]); n < len(dirs) {
		return nil, fmt.Errorf("%q are no two descriptors: %w", flag, err)
	}
	for _, fd := range dirs {
		unix.CloseOnExec(int(fd))
	}
	return func(nonce []byte) error {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer null.Close() //nolint:errcheck // nothing was written
		done, told, err := os.Pipe()
		if err != nil {
			return err
		}
		defer done.Close() //nolint:errcheck // it was only read
		_, err = syscall.ForkExec("/proc/self/exe", []string{"shim", PackArg, hex.EncodeToString(nonce)}, &syscall.ProcAttr{
			Files: []uintptr{null.Fd(), null.Fd(), uintptr(syscall.Stderr), out, uintptr(dirs[0]), uintptr(dirs[1]), told.Fd()},
		})
		if err := errors.Join(err, told.Close()); err != nil {
			return err
		}
		if n, err := done.Read(make([]byte, 1)); n == 0 {
			return fmt.Errorf("the guest could not tell its files: %w", err)
		}
		return nil
	}, nil
}

// Pack is the body of the program, and gives its exit code.
func Pack(args []string) int {
	if err := tell(args); err != nil {
		fmt.Fprintln(os.Stderr, "millrace guest: pack:", err) //nolint:errcheck // the console, if there is one
		return 1
	}
	return 0
}

func tell(args []string) error {
	if len(args) != 1 {
		return errors.New("one argument is wanted")
	}
	nonce, err := hex.DecodeString(args[0])
	if err != nil {
		return err
	}
	os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0) //nolint:errcheck // nobody else could let the others go on
	groups := os.NewFile(packGroups, "cgroups")
	if err := write(groups, "cgroup.procs", "0"); err != nil {
		return err
	}
	err = stop(groups)
	if err == nil {
		err = tellStopped(nonce)
	}
	return errors.Join(err, write(groups, freezeFile, "0"))
}

// tellStopped is tell while all others stand still.
func tellStopped(nonce []byte) (err error) {
	flags, err := unix.FcntlInt(packPort, unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(packPort, unix.F_SETFL, flags|unix.O_NONBLOCK)
	}
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	defer unix.FcntlInt(packPort, unix.F_SETFL, flags) //nolint:errcheck // they were its flags
	// Anew: who was here before has read the other to its end.
	written, err := openAt(os.NewFile(packWritten, "written"), ".", unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer written.Close() //nolint:errcheck // it was only read
	w := serial.Resume(patient(packPort), nonce)
	if err := pack(w, written); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, err = os.NewFile(packDone, "done").WriteString("y")
	return err
}

const (
	freezeFile = "box/cgroup.freeze"
	eventsFile = "box/cgroup.events"
	stopTime   = 10 * time.Second // more than any process takes to stop
)

// stop stops all processes of the sandbox, the shim too.
func stop(groups *os.File) error {
	if err := write(groups, freezeFile, "1"); err != nil {
		return err
	}
	for end := time.Now().Add(stopTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		f, err := openAt(groups, eventsFile, 0)
		if err != nil {
			return err
		}
		b := make([]byte, 256)
		n, err := f.Read(b)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		if strings.Contains(string(b[:n]), "frozen 1") {
			return nil
		}
	}
	return fmt.Errorf("a process did not stop within %v", stopTime)
}

// write writes to a file that is there.
func write(dir *os.File, name, text string) error {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// patience is for a host that reads nothing.
const patience = 30 * time.Second

// patient is a port, written to without waiting for a host that is gone: nobody would let
// the sandbox go on.
type patient int

func (p patient) Write(b []byte) (done int, err error) {
	for done < len(b) {
		n, err := unix.Write(int(p), b[done:])
		switch {
		case n > 0:
			done += n
		case errors.Is(err, unix.EAGAIN):
			err = p.await()
		case errors.Is(err, unix.EINTR):
			err = nil
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// await waits until there is room.
func (p patient) await() error {
	fds := []unix.PollFd{{Fd: int32(p), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, int(patience.Milliseconds()))
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return os.NewSyscallError("poll", err)
	case n == 0:
		return fmt.Errorf("the host has read nothing for %v", patience)
	case fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0:
		return errors.New("the host is gone")
	}
	return nil
}
