package shim

import (
	"syscall"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/shim/internal/children"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// kill sends a signal to p's group, or to the watch that p is.
func (p *proc) kill(sig syscall.Signal) error {
	if p.watch != nil {
		p.watch.signal(sig)
		return nil
	}
	terminal := children.NoTerminal
	if p.tty != nil && p.in.f != nil {
		terminal = p.in.fd
	}
	return p.child.Signal(sig, terminal)
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

// rebootPause is the time between two rounds of reboot.
const rebootPause = 5 * time.Millisecond

// reboot kills everything and returns when nothing runs any more: the next command of hostd
// finds the sandbox as after a reboot. A process being started may not have been a child
// yet when all were killed, so there is a loop.
func (s *Shim) reboot() {
	for {
		s.mu.Lock()
		s.endWatches()
		starting := s.spawning > 0
		s.mu.Unlock()
		s.children.KillAll()
		if !starting {
			return
		}
		time.Sleep(rebootPause)
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
