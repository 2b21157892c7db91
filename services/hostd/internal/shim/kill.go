package shim

import (
	"os"
	"syscall"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// kill sends a signal to p's group, and to the foreground group of its terminal. If the
// terminal cannot report that group, as in gVisor, SIGKILL also hangs up the session.
func (p *proc) kill(sig syscall.Signal) error {
	if p.watch != nil {
		p.watch.signal(sig)
		return nil
	}
	if p.reaped && !p.groupRemains() {
		return syscall.ESRCH
	}
	if p.tty != nil && p.in.f != nil && !p.reaped {
		switch group, known := foreground(p.in.fd); {
		case known && group > 1 && group != p.pid:
			syscall.Kill(-group, sig) //nolint:errcheck // it may have ended
		case !known && sig == syscall.SIGKILL:
			hangUp(p.pid)
		}
	}
	return syscall.Kill(-p.pid, sig)
}

// groupRemains reports whether processes remain in the group of p, which has ended. As long as they
// do, p's pid is not reused. Once the group was found empty, or the pid in use again, the
// number may be that of another group and is never again p's. Shim.mu is held.
func (p *proc) groupRemains() bool {
	if !p.groupEmpty {
		empty := syscall.Kill(-p.pid, 0) == syscall.ESRCH
		p.groupEmpty = empty || syscall.Kill(p.pid, 0) != syscall.ESRCH
	}
	return !p.groupEmpty
}

// timeout kills a process whose timeout ran out.
func (p *proc) timeout() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.reaped || p.extendTimeout() {
		return
	}
	p.timedOut = true
	p.kill(syscall.SIGKILL) //nolint:errcheck // it may have ended
}

// end kills everything. Ended follows when every record is complete.
func (s *Shim) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return
	}
	s.ending = true
	s.setLimits(s.limits)
	for _, p := range s.procs {
		if p.exited && p.timer != nil && !p.finished {
			p.timer.Reset(endGrace)
		}
	}
	go func() {
		s.reboot()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ifEnded()
	}()
}

// reboot kills everything and returns when nothing runs any more: the next command of hostd
// finds the sandbox as after a reboot. A process being started may not have been a child
// yet when all were killed, so there is a loop.
func (s *Shim) reboot() {
	for {
		s.mu.Lock()
		s.endWatches()
		starting := s.spawning > 0
		s.mu.Unlock()
		s.killAll()
		if !starting {
			return
		}
		time.Sleep(killPause)
	}
}

// endWatches ends the watches, which no signal reaches. Shim.mu is held.
func (s *Shim) endWatches() {
	for _, p := range s.procs {
		if p.watch != nil {
			p.watch.signal(syscall.SIGKILL)
		}
	}
}

// ifEnded reports the end to hostd when, after End, every record is complete.
func (s *Shim) ifEnded() {
	if !s.ending || s.ended {
		return
	}
	for _, p := range s.procs {
		if !p.finished {
			return
		}
	}
	s.ended = true
	if c := s.session; c != nil {
		c.send(wire.AppendEnded)
	}
}

// Rounds of killAll: a process that starts during one round is found in the next.
const (
	killRounds = 200
	killPause  = 5 * time.Millisecond
)

// killAll kills everything that runs in the sandbox, until nothing is left or the rounds
// are used up.
func (s *Shim) killAll() {
	s.wakeReaper() // wake reap: a child forked elsewhere may have ended
	for range killRounds {
		if s.pid1 {
			if err := syscall.Kill(-1, syscall.SIGKILL); err == syscall.ESRCH {
				return
			}
		} else {
			left := descendants(os.Getpid())
			if len(left) == 0 {
				return
			}
			for _, pid := range left {
				syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
			}
		}
		time.Sleep(killPause)
	}
}
