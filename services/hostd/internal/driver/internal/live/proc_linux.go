package live

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Proc is a running process, held by its pidfd so that a reused pid cannot be mistaken
// for it. The pidfd is closed when the process has ended.
type Proc struct {
	PID  int
	fd   *os.File
	done chan struct{}
}

// PidFD requests the pidfd of a child that is started with attr, for Watch.
func PidFD(attr *syscall.SysProcAttr) *int {
	fd := -1
	attr.PidFD = &fd
	return &fd
}

// Watch monitors the process that StartProcess made. pidfd is from PidFD and
// belongs to the Proc from now on.
func Watch(p *os.Process, pidfd int) (*Proc, error) {
	return watch(p.Pid, pidfd, func() { p.Wait() }) //nolint:errcheck // only reaps it: its exit status is not used
}

// Find returns the process of s, or ErrGone if it has ended. It need not be a child
// of this process.
func Find(s State) (*Proc, error) {
	boot, err := BootID()
	if err != nil {
		return nil, err
	}
	if s.PID == 0 || s.Boot != boot {
		return nil, ErrGone
	}
	fd, err := unix.PidfdOpen(s.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	// Between the two calls the process may have ended and its pid been reused;
	// then the pidfd reports that it has ended.
	start, err := StartTime(s.PID)
	if err != nil || start != s.Start || readable(fd) {
		unix.Close(fd)
		return nil, ErrGone
	}
	return watch(s.PID, fd, func() {})
}

func watch(pid, pidfd int, reap func()) (*Proc, error) {
	// In non-blocking mode the runtime's poller waits for the pidfd, without
	// a thread for each sandbox.
	if err := unix.SetNonblock(pidfd, true); err != nil {
		unix.Close(pidfd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	p := &Proc{PID: pid, fd: os.NewFile(uintptr(pidfd), "pidfd"), done: make(chan struct{})}
	conn, err := p.fd.SyscallConn()
	if err != nil {
		p.fd.Close()
		return nil, err
	}
	go func() {
		defer close(p.done)
		if err := conn.Read(func(fd uintptr) bool { return readable(int(fd)) }); err != nil {
			// The poller does not support pidfds here: block a thread.
			waitReadable(p.fd)
		}
		reap()
		p.fd.Close()
	}()
	return p, nil
}

// Done is closed when the process has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended, a moment before Done is closed: what is
// read by its pid may belong to another process by then.
func (p *Proc) Ended() bool {
	conn, err := p.fd.SyscallConn()
	if err != nil {
		return true
	}
	ended := true                                                // also where the pidfd is closed
	conn.Control(func(fd uintptr) { ended = readable(int(fd)) }) //nolint:errcheck // see above
	return ended
}

// Kill sends SIGKILL; it returns nil for a process that has already ended.
func (p *Proc) Kill() error {
	conn, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	var sent error = unix.ESRCH                                                                   // also where the pidfd is closed
	conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) }) //nolint:errcheck // see above
	if sent != nil && !errors.Is(sent, unix.ESRCH) {
		return os.NewSyscallError("pidfd_send_signal", sent)
	}
	return nil
}

// StartTime returns when pid started, in clock ticks since boot.
func StartTime(pid int) (uint64, error) {
	f, err := stat(pid)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(f[22-firstStat], 10, 64)
}

// Parent returns the state of pid, as in ps, and its parent.
func Parent(pid int) (state byte, parent int, err error) {
	f, err := stat(pid)
	if err != nil {
		return 0, 0, err
	}
	parent, err = strconv.Atoi(f[4-firstStat])
	return f[0][0], parent, err
}

// firstStat is the first field of proc_pid_stat(5) that stat returns.
const firstStat = 3

func stat(pid int) ([]string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, err
	}
	// The second field is the command in parentheses and may contain any character.
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(f) <= 24-firstStat {
		return nil, fmt.Errorf("/proc/%d/stat: %q", pid, s)
	}
	return f, nil
}

func waitReadable(f *os.File) {
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	for {
		if n, err := unix.Poll(fds, -1); n == 1 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// readable reports whether the process of a pidfd has ended.
func readable(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// BootID returns the id of this boot of the kernel.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}
