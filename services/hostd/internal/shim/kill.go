package shim

import (
	"os"
	"syscall"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// kill sends a signal to p's group, and to the group in its terminal's
// foreground. Where a terminal does not tell that one, as gVisor's does not, who is
// killed takes all along that a hangup ends.
func (p *proc) kill(sig syscall.Signal) error {
	if p.watch != nil {
		p.watch.signal(sig)
		return nil
	}
	if p.reaped && !p.left() {
		return syscall.ESRCH
	}
	if p.tty != nil && p.in.f != nil && !p.reaped {
		switch group, told := foreground(p.in.fd); {
		case told && group > 1 && group != p.pid:
			syscall.Kill(-group, sig) //nolint:errcheck // it may have ended
		case !told && sig == syscall.SIGKILL:
			hangUp(p.pid)
		}
	}
	return syscall.Kill(-p.pid, sig)
}

// left reports whether p, which has ended, left somebody in its group. As long as it
// did, nobody else gets its pid. Once it did not, or somebody has the pid, its number
// may be that of any group, and never again p's. Shim.mu is held.
func (p *proc) left() bool {
	if !p.alone {
		empty := syscall.Kill(-p.pid, 0) == syscall.ESRCH
		p.alone = empty || syscall.Kill(p.pid, 0) != syscall.ESRCH
	}
	return !p.alone
}

// timeout ends a process whose own time ran out.
func (p *proc) timeout() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.reaped || p.spared() {
		return
	}
	p.timedOut = true
	p.kill(syscall.SIGKILL) //nolint:errcheck // it may have ended
}

// end kills everything; Ended follows when every record is complete.
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

// reboot kills everything and returns when nothing runs any more: what hostd says
// next finds the place as a machine that was switched off and on. Who is being started
// may have been no child yet when all were killed.
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

// endWatches ends what no signal reaches; Shim.mu is held.
func (s *Shim) endWatches() {
	for _, p := range s.procs {
		if p.watch != nil {
			p.watch.signal(syscall.SIGKILL)
		}
	}
}

// ifEnded tells hostd when, after End, every record is complete.
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

// How long killAll goes on: what starts while it looks is found the next time.
const (
	killRounds = 200
	killPause  = 5 * time.Millisecond
)

// killAll kills everything that runs in the sandbox, until nothing is left or
// what is left does not die.
func (s *Shim) killAll() {
	s.nudge() // a child that others forked may have ended with nobody waiting for any
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
