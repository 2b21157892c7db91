package shim

import (
	"syscall"

	"github.com/millrace/millrace/events/process"
)

// childEnded records how the process ended, and what it left.
func (p *proc) childEnded(ws syscall.WaitStatus) {
	p.s.mu.Lock()
	p.markReaped(ws)
	p.s.mu.Unlock()
	p.drain()
}

// markReaped records how the process ended. Shim.mu is held, so reaped and exit change together.
func (p *proc) markReaped(ws syscall.WaitStatus) {
	p.reaped, p.exit = true, p.exitOf(ws)
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
	case sig == int32(syscall.SIGKILL) && p.s.oom.Attribute(p.kills):
		x.Cause = process.CauseOOM
	}
	return x
}
