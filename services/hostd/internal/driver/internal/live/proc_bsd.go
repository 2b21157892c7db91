//go:build freebsd || darwin

package live

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/bsd"
)

// Proc is a running process. There is no pidfd here: between the look at its
// start and a signal to it lies a moment, in which another one may in theory have
// been given its pid.
type Proc struct {
	PID   int
	start uint64
	done  chan struct{}
}

// PidFD is what Watch wants; there is none here.
func PidFD(*syscall.SysProcAttr) *int { return new(int) }

// Watch takes over the process that StartProcess made.
func Watch(p *os.Process, _ int) (*Proc, error) {
	found, err := bsd.Find(p.Pid)
	if err != nil {
		return nil, err
	}
	w := &Proc{PID: p.Pid, start: found.Start, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		p.Wait() //nolint:errcheck // only to reap it: how it ended is nobody's concern
	}()
	return w, nil
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
	// Watched before it is looked at: what ends in between is noticed.
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
	if !p.lives() {
		unix.Close(kq)
		return nil, ErrGone
	}
	go p.wait(kq)
	return p, nil
}

// wait spends a thread until the process has ended.
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

func (p *Proc) lives() bool {
	found, err := bsd.Find(p.PID)
	return err == nil && found.Start == p.start && !found.Zombie
}

// Done is closed when the process has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended, which Done tells a moment later.
func (p *Proc) Ended() bool { return !p.lives() }

// Kill sends SIGKILL; a process that has ended already is no error.
func (p *Proc) Kill() error {
	if !p.lives() {
		return nil
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return os.NewSyscallError("kill", err)
	}
	return nil
}

// StartTime is when pid started, in microseconds since 1970.
func StartTime(pid int) (uint64, error) {
	p, err := bsd.Find(pid)
	return p.Start, err
}

// BootID names this boot of the kernel.
func BootID() (string, error) { return bsd.BootID() }
