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

// Proc is a running process, held by its pidfd so that its pid cannot come to
// mean another one. The pidfd is closed when the process has ended.
type Proc struct {
	PID  int
	fd   *os.File
	done chan struct{}
}

// PidFD has a child that is started with attr give its pidfd for Watch.
func PidFD(attr *syscall.SysProcAttr) *int {
	fd := -1
	attr.PidFD = &fd
	return &fd
}

// Watch takes over the process that StartProcess made. pidfd is from
// PidFD and belongs to the Proc from now on.
func Watch(p *os.Process, pidfd int) (*Proc, error) {
	return watch(p.Pid, pidfd, func() { p.Wait() }) //nolint:errcheck // only to reap it: how it ended is nobody's concern
}

// Find holds the process of s; ErrGone if it does not live any more. It need not
// be our child.
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
	// Between the two calls the process may have ended and its pid been given
	// away; then the pidfd says that it has ended.
	start, err := StartTime(s.PID)
	if err != nil || start != s.Start || readable(fd) {
		unix.Close(fd)
		return nil, ErrGone
	}
	return watch(s.PID, fd, func() {})
}

func watch(pid, pidfd int, reap func()) (*Proc, error) {
	// In non-blocking mode the pidfd is waited for by the runtime's poller: no
	// thread is spent on a sandbox.
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
			// The poller does not take pidfds: spend the thread.
			waitReadable(p.fd)
		}
		reap()
		p.fd.Close()
	}()
	return p, nil
}

// Done is closed when the process has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended, which Done tells a moment later: what is
// read of its pid may be another one's by then.
func (p *Proc) Ended() bool {
	conn, err := p.fd.SyscallConn()
	if err != nil {
		return true
	}
	ended := true                                                // also where the pidfd is closed
	conn.Control(func(fd uintptr) { ended = readable(int(fd)) }) //nolint:errcheck // see above
	return ended
}

// Kill sends SIGKILL; a process that has ended already is no error.
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

// StartTime is when pid started, in clock ticks since boot.
func StartTime(pid int) (uint64, error) {
	f, err := stat(pid)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(f[22-firstStat], 10, 64)
}

// Parent tells the state of pid, as in ps, and its parent.
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
	// The second field is the command in parentheses and may hold anything.
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

// BootID names this boot of the kernel.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}
