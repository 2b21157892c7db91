//go:build freebsd || darwin

package live

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/procstat"
)

// Proc is a running process. There is no pidfd here: between the check of its start
// time and a signal to it lies a moment in which its pid may in theory have been
// given to another process.
type Proc struct {
	PID   int
	start uint64
	done  chan struct{}
}

// PidFD returns the argument for Watch; this system has no pidfds.
func PidFD(*syscall.SysProcAttr) *int { return new(int) }

// Watch monitors the process that StartProcess made.
func Watch(p *os.Process, _ int) (*Proc, error) {
	found, err := procstat.Find(p.Pid)
	if err != nil {
		return nil, err
	}
	w := &Proc{PID: p.Pid, start: found.Start, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		p.Wait() //nolint:errcheck // only reaps it: its exit status is not used
	}()
	return w, nil
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
	// Monitoring starts before the check, so that an end in between is noticed.
	kq, err := unix.Kqueue()
	if err != nil {
		return nil, os.NewSyscallError("kqueue", err)
	}
	unix.CloseOnExec(kq)
	var ev unix.Kevent_t
	unix.SetKevent(&ev, s.PID, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	ev.Fflags = unix.NOTE_EXIT
	if _, err := unix.Kevent(kq, []unix.Kevent_t{ev}, nil, nil); err != nil {
		unix.Close(kq)
		if errors.Is(err, unix.ESRCH) {
			return nil, ErrGone
		}
		return nil, os.NewSyscallError("kevent", err)
	}
	p := &Proc{PID: s.PID, start: s.Start, done: make(chan struct{})}
	if !p.running() {
		unix.Close(kq)
		return nil, ErrGone
	}
	go p.wait(kq)
	return p, nil
}

// wait blocks a thread until the process has ended.
func (p *Proc) wait(kq int) {
	defer close(p.done)
	defer unix.Close(kq)
	events := make([]unix.Kevent_t, 1)
	for {
		if n, err := unix.Kevent(kq, nil, events, nil); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (p *Proc) running() bool {
	found, err := procstat.Find(p.PID)
	return err == nil && found.Start == p.start && !found.Zombie
}

// Done is closed when the process has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended, a moment before Done is closed.
func (p *Proc) Ended() bool { return !p.running() }

// Kill sends SIGKILL; it returns nil for a process that has already ended.
func (p *Proc) Kill() error {
	if !p.running() {
		return nil
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return os.NewSyscallError("kill", err)
	}
	return nil
}

// StartTime returns when pid started, in microseconds since 1970.
func StartTime(pid int) (uint64, error) {
	p, err := procstat.Find(pid)
	return p.Start, err
}

// BootID returns the id of this boot of the kernel.
func BootID() (string, error) { return procstat.BootID() }
