package children

import (
	"errors"
	"syscall"

	"github.com/millrace/millrace/internal/waiting"
)

// reap waits for every child, own and adopted, until Close.
func (c *Children) reap() {
	for {
		pid, ws, err := c.wait()
		switch {
		case errors.Is(err, syscall.ECHILD):
			select {
			case <-c.added:
			case <-c.done:
				return
			}
		case err == nil:
			c.childEnded(pid, ws)
		}
	}
}

// wakeReaper wakes reap: there may be a child to wait for.
func (c *Children) wakeReaper() {
	waiting.Notify(c.added)
}

// lockForReap locks mu once it is known whether an ended child is the one being forked. Until
// the child is waited for, its pid is not reused.
func (c *Children) lockForReap(pid int) {
	c.mu.Lock()
	if c.running[pid] != nil {
		return
	}
	c.mu.Unlock()
	c.forkMu.Lock()
	c.mu.Lock()
	c.forkMu.Unlock()
}

// childEnded records how a child ended and reports it to the child's owner, if there is one
// yet. The caller holds mu; childEnded unlocks it.
func (c *Children) childEnded(pid int, ws syscall.WaitStatus) {
	ch := c.running[pid]
	if ch == nil { // adopted
		c.mu.Unlock()
		return
	}
	delete(c.running, pid)
	ch.ended, ch.status = true, ws
	ch.groupRemains()
	report := ch.report
	c.mu.Unlock()
	if report != nil {
		report(ws)
	}
}
