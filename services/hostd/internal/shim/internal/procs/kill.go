package procs

import (
	"syscall"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/shim/internal/children"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// kill sends a signal to p's group, or to the watch that p is. After SIGKILL, processes outside of the
// group no longer keep the record open.
func (p *proc) kill(sig syscall.Signal) error {
	if sig == syscall.SIGKILL {
		p.limitSilence()
	}
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

// endGrace is the grace of records while the sandbox ends.
const endGrace = 200 * time.Millisecond

// End kills everything. Ended follows when every record is complete.
func (t *Table) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending {
		return
	}
	t.ending = true
	t.grace, t.graceMax = endGrace, endGrace
	for _, p := range t.procs {
		if p.exited && !p.finished {
			p.awaitSilence(endGrace)
		}
	}
	go func() {
		t.Reboot()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.ifEnded()
	}()
}

// rebootPause is the time between two rounds of Reboot.
const rebootPause = 5 * time.Millisecond

// Reboot kills everything and returns when nothing runs any more: the next command of hostd
// finds the sandbox as after a reboot. A process being started may not have been a child
// yet when all were killed, so there is a loop.
func (t *Table) Reboot() {
	for {
		t.mu.Lock()
		t.endWatches()
		starting := t.spawning > 0
		t.mu.Unlock()
		t.cfg.Children.KillAll()
		if !starting {
			return
		}
		time.Sleep(rebootPause)
	}
}

// endWatches ends the watches, which no signal reaches. Table.mu is held.
func (t *Table) endWatches() {
	for _, p := range t.procs {
		if p.watch != nil {
			p.watch.signal(syscall.SIGKILL)
		}
	}
}

// ifEnded reports the end to hostd when, after End, every record is complete. The shim's own end
// follows when hostd has stored them, which is at once if there are none.
func (t *Table) ifEnded() {
	if !t.ending || t.ended {
		return
	}
	for _, p := range t.procs {
		if !p.finished {
			return
		}
	}
	t.ended = true
	t.cfg.Hostd.Send(wire.AppendEnded)
	if len(t.procs) == 0 {
		t.close()
	}
}

// Conclude handles wire.TypeConclude: it completes the records of all ended processes when
// hostd takes too long to store their remaining output.
func (t *Table) Conclude() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.procs {
		p.conclude()
	}
}

// conclude completes the record after the last event that was sent.
func (p *proc) conclude() {
	if !p.reaped || p.pid == 0 || !p.rec.Conclude(p.pid, p.exit) {
		return
	}
	if !p.exited {
		p.setExited()
	}
	p.setFinished()
}
