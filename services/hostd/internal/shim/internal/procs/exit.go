package procs

import (
	"syscall"

	"github.com/millrace/millrace/events/process"
)

// childEnded records how the process ended, and what it left.
func (p *proc) childEnded(ws syscall.WaitStatus) {
	p.t.mu.Lock()
	p.markReaped(ws)
	p.t.mu.Unlock()
	p.drain()
}

// markReaped records how the process ended. Table.mu is held, so reaped and exit change together.
func (p *proc) markReaped(ws syscall.WaitStatus) {
	p.reaped, p.exit = true, p.exitOf(ws)
	p.stopTimeout()
}

// drain reads the remaining output of an ended process and records the events that are due.
func (p *proc) drain() {
	for _, st := range p.reading.streams { // constant once the process has a pid
		st.ProcessExited()
	}
	p.t.mu.Lock()
	p.settle()
	p.t.mu.Unlock()
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
	case p.timeout.fired && sig == int32(syscall.SIGKILL):
		x.Cause = process.CauseTimeout
	case p.t.ending && sig == int32(syscall.SIGKILL):
		x.Cause = process.CauseSandboxGone
	case p.requested[sig]:
		x.Cause = process.CauseKilled
	case sig == int32(syscall.SIGKILL) && p.t.cfg.OOM.Attribute(p.kills):
		x.Cause = process.CauseOOM
	}
	return x
}
