//go:build linux

package vminit

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/fifolink"
)

// A program of its own sends a guest's files. The shim starts it when hostd opens an aside
// connection: all other processes, the shim included, are stopped meanwhile.

// Descriptors that the program inherits.
const (
	packPort    = 3 + iota // written to and polled
	packWritten            // directory of written files
	packGroups             // directory of all cgroups
	packDone               // receives a byte when all is written
)

// Aside returns the handler of aside connections at the stream whose descriptor is out: it
// sends the guest's files; see fifolink.ListenAside. It is for the first process of a
// guest, which reaps all children. flag is the value of PackFlag.
func Aside(flag string, out uintptr) (func(nonce []byte) error, error) {
	var dirs [2]uint64
	if n, err := fmt.Sscanf(flag, "%d,%d", &dirs[0], &dirs[1]); n < len(dirs) {
		return nil, fmt.Errorf("%q: want two descriptors: %w", flag, err)
	}
	for _, fd := range dirs {
		unix.CloseOnExec(int(fd))
	}
	return func(nonce []byte) error {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer null.Close()
		done, doneWriter, err := os.Pipe()
		if err != nil {
			return err
		}
		defer done.Close()
		_, err = syscall.ForkExec("/proc/self/exe", []string{"shim", PackArg, hex.EncodeToString(nonce)}, &syscall.ProcAttr{
			Files: []uintptr{null.Fd(), null.Fd(), uintptr(syscall.Stderr), out, uintptr(dirs[0]), uintptr(dirs[1]), doneWriter.Fd()},
		})
		if err := errors.Join(err, doneWriter.Close()); err != nil {
			return err
		}
		if n, err := done.Read(make([]byte, 1)); n == 0 {
			return fmt.Errorf("the guest could not send its files: %w", err)
		}
		return nil
	}, nil
}

// Pack runs the program and returns its exit code.
func Pack(args []string) int {
	err := errors.New("missing nonce")
	switch {
	case len(args) == 1:
		err = supervise(args[0])
	case len(args) == 2 && args[1] == childArg:
		err = send(args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "millrace guest: pack:", err)
		return 1
	}
	return 0
}

// sendTime limits how long sending the files may take: a host that gave up may go unnoticed
// when another one continues to read.
const sendTime = 15 * time.Second

// childArg is the argument of the child that packs. It has a parent, so that all others
// resume even if it fails.
const childArg = "send"

// supervise stops all other processes, and resumes them when the child has sent the files or
// has ended.
func supervise(nonce string) (err error) {
	score("-1000") // nothing else could resume the others
	groups, err := reopen(packGroups)
	if err != nil {
		return err
	}
	defer groups.Close()
	if err := write(groups, "cgroup.procs", "0"); err != nil {
		return err
	}
	stopped, err := stop(groups)
	defer func() {
		for _, dir := range stopped {
			err = errors.Join(err, write(groups, dir+freezeFile, "0"))
		}
	}()
	if err != nil {
		return err
	}
	flags, err := unix.FcntlInt(packPort, unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(packPort, unix.F_SETFL, flags|unix.O_NONBLOCK)
	}
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	port := fileOf(packPort)
	defer port.Close()
	defer unix.FcntlInt(packPort, unix.F_SETFL, flags) //nolint:errcheck // restores the flags
	child, err := os.StartProcess("/proc/self/exe", []string{"shim", PackArg, nonce, childArg}, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, port, fileOf(packWritten)},
	})
	if err != nil {
		return err
	}
	late := time.AfterFunc(sendTime, func() { child.Kill() }) //nolint:errcheck // it has ended then
	defer late.Stop()
	state, err := child.Wait()
	if err == nil && !state.Success() {
		err = errors.New(state.String())
	}
	if err == nil {
		_, err = fileOf(packDone).WriteString("y")
	}
	return err
}

// reopen opens a directory again: the inherited descriptor may have been read to its end.
func reopen(fd uintptr) (*os.File, error) { return openAt(fileOf(fd), ".", unix.O_DIRECTORY) }

func fileOf(fd uintptr) *os.File { return os.NewFile(fd, "inherited") }

// score sets the priority with which the kernel kills this program when memory runs out.
func score(s string) {
	os.WriteFile("/proc/self/oom_score_adj", []byte(s), 0) //nolint:errcheck // it is killed earlier then
}

// send writes the files to the port, while all other processes are stopped.
func send(nonce string) error {
	score("1000")
	raw, err := hex.DecodeString(nonce)
	if err != nil {
		return err
	}
	written, err := reopen(packWritten)
	if err != nil {
		return err
	}
	defer written.Close()
	w := fifolink.Resume(timeoutPort(packPort), raw)
	if err := pack(w, written); err != nil {
		return err
	}
	return w.Close()
}

const (
	freezeFile = "/cgroup.freeze"
	eventsFile = "/cgroup.events"
	stopTime   = 10 * time.Second // more than any process takes to stop
)

// stop stops all processes but this one, the shim included: all cgroups that root may have
// made beside the sandbox's, but not processes outside of any cgroup. It returns the cgroups
// that were not frozen before.
func stop(groups *os.File) (stopped []string, err error) {
	all, err := groups.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if !e.IsDir() {
			continue
		}
		was, err := read(groups, e.Name()+freezeFile)
		if errors.Is(err, fs.ErrNotExist) || strings.TrimSpace(was) == "1" {
			continue
		}
		if err != nil {
			return stopped, err
		}
		if err := write(groups, e.Name()+freezeFile, "1"); err != nil {
			return stopped, err
		}
		stopped = append(stopped, e.Name())
	}
	end := time.Now().Add(stopTime)
	for _, dir := range stopped {
		for {
			events, err := read(groups, dir+eventsFile)
			if err != nil {
				return stopped, err
			}
			if strings.Contains(events, "frozen 1") {
				break
			}
			if time.Now().After(end) {
				return stopped, fmt.Errorf("a process did not stop within %v", stopTime)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return stopped, nil
}

// read reads a small file.
func read(dir *os.File, name string) (string, error) {
	f, err := openAt(dir, name, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer f.Close()
	b := make([]byte, 256)
	n, err := f.Read(b)
	return string(b[:n]), err
}

// write writes to an existing file.
func write(dir *os.File, name, text string) error {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// stallTimeout is how long a host may read nothing.
const stallTimeout = 30 * time.Second

// timeoutPort is a port whose writes fail if the host has ended: otherwise the sandbox would
// remain stopped.
type timeoutPort int

func (p timeoutPort) Write(b []byte) (done int, err error) {
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

// await waits until the port is writable.
func (p timeoutPort) await() error {
	fds := []unix.PollFd{{Fd: int32(p), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, int(stallTimeout.Milliseconds()))
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return os.NewSyscallError("poll", err)
	case n == 0:
		return fmt.Errorf("the host has read nothing for %v", stallTimeout)
	case fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0:
		return errors.New("the host has closed the port")
	}
	return nil
}
