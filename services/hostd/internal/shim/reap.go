package shim

import (
	"errors"
	"syscall"

	"github.com/millrace/millrace/events/process"
)

// reap waits for every child, own and adopted, until the shim ends.
func (s *Shim) reap() {
	for {
		pid, ws, err := s.wait()
		switch {
		case errors.Is(err, syscall.ECHILD):
			select {
			case <-s.spawned:
			case <-s.done:
				return
			}
		case err == nil:
			s.waited(pid, ws)
		}
	}
}

// nudge wakes reap: there may be a child to wait for.
func (s *Shim) nudge() {
	select {
	case s.spawned <- struct{}{}:
	default:
	}
}

// meet locks Shim.mu once it is known whether an ended child is the one being forked. Until
// the child is waited for, its pid is not reused.
func (s *Shim) meet(pid int) {
	s.mu.Lock()
	if s.pids[pid] != nil || s.born[pid] != nil {
		return
	}
	s.mu.Unlock()
	s.forking.Lock()
	s.mu.Lock()
	s.forking.Unlock()
}

// waited records how a child ended. The caller holds Shim.mu; waited unlocks it.
func (s *Shim) waited(pid int, ws syscall.WaitStatus) {
	if c := s.born[pid]; c != nil {
		delete(s.born, pid)
		c.ended, c.status = true, ws
		s.mu.Unlock()
		return
	}
	p := s.pids[pid]
	if p == nil { // adopted
		s.mu.Unlock()
		return
	}
	delete(s.pids, pid)
	p.ended(ws)
	s.mu.Unlock()
	p.drain()
}

// ended records how the process ended. Shim.mu is held, so reaped and exit change together.
func (p *proc) ended(ws syscall.WaitStatus) {
	p.reaped, p.exit = true, p.exitOf(ws)
	p.left()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.unwatchTime()
}

// drain reads the remaining output of an ended process and records the events that are due.
func (p *proc) drain() {
	for _, st := range p.streams { // constant once the process has a pid
		st.exit()
	}
	p.s.mu.Lock()
	p.settle()
	p.s.mu.Unlock()
}

// exitOf returns how the process ended, and why as far as the shim knows.
func (p *proc) exitOf(ws syscall.WaitStatus) process.Exit {
	if ws.Exited() {
		code := int32(ws.ExitStatus())
		return process.Exit{Code: &code, Cause: process.CauseExited}
	}
	sig := int32(ws.Signal())
	x := process.Exit{Signal: sig, Cause: process.CauseSignaled}
	switch {
	case p.timedOut && sig == int32(syscall.SIGKILL):
		x.Cause = process.CauseTimeout
	case p.s.ending && sig == int32(syscall.SIGKILL):
		x.Cause = process.CauseSandboxGone
	case p.asked[sig]:
		x.Cause = process.CauseKilled
	case sig == int32(syscall.SIGKILL) && p.s.outOfMemory(p.kills):
		x.Cause = process.CauseOOM
	}
	return x
}
