package shim

import (
	"errors"
	"syscall"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/internal/waiting"
)

// reap waits for every child, own and adopted, until the shim ends.
func (s *Shim) reap() {
	for {
		pid, ws, err := s.wait()
		switch {
		case errors.Is(err, syscall.ECHILD):
			select {
			case <-s.childAdded:
			case <-s.done:
				return
			}
		case err == nil:
			s.childEnded(pid, ws)
		}
	}
}

// wakeReaper wakes reap: there may be a child to wait for.
func (s *Shim) wakeReaper() {
	waiting.Notify(s.childAdded)
}

// lockForReap locks Shim.mu once it is known whether an ended child is the one being forked. Until
// the child is waited for, its pid is not reused.
func (s *Shim) lockForReap(pid int) {
	s.mu.Lock()
	if s.pids[pid] != nil || s.unclaimed[pid] != nil {
		return
	}
	s.mu.Unlock()
	s.forkMu.Lock()
	s.mu.Lock()
	s.forkMu.Unlock()
}

// childEnded records how a child ended. The caller holds Shim.mu; childEnded unlocks it.
func (s *Shim) childEnded(pid int, ws syscall.WaitStatus) {
	if c := s.unclaimed[pid]; c != nil {
		delete(s.unclaimed, pid)
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
	p.markReaped(ws)
	s.mu.Unlock()
	p.drain()
}

// markReaped records how the process ended. Shim.mu is held, so reaped and exit change together.
func (p *proc) markReaped(ws syscall.WaitStatus) {
	p.reaped, p.exit = true, p.exitOf(ws)
	p.groupRemains()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.stopTimeout()
}

// drain reads the remaining output of an ended process and records the events that are due.
func (p *proc) drain() {
	for _, st := range p.streams { // constant once the process has a pid
		st.processExited()
	}
	p.s.mu.Lock()
	p.settle()
	p.s.mu.Unlock()
}

// exitOf returns how the process ended, and the cause if the shim observed it.
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
	case p.requested[sig]:
		x.Cause = process.CauseKilled
	case sig == int32(syscall.SIGKILL) && p.s.outOfMemory(p.kills):
		x.Cause = process.CauseOOM
	}
	return x
}
