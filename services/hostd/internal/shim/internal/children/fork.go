package children

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"github.com/millrace/millrace/services/hostd/internal/spawn"
)

// fork forks all children, one after the other, until the shim ends. It runs
// on a thread of its own, the only one in the cgroup that counts the sandbox's processes,
// and lowers the process limit to theirs, which they cannot raise. When they have used up
// either, no process can be started, but the shim still gets the threads that it needs: the
// runtime aborts a program that gets none.
func (c *Children) fork() {
	runtime.LockOSThread()
	enterForks(c.cfg.Forks)
	limit := reserveProcesses()
	c.spawner = spawn.New()
	c.spawner.Processes = limit.max()
	for f := range c.forks {
		limit.lower()
		f()
		limit.raise()
	}
}

// Start forks a child and waits until it has executed the program. The error is
// os.ErrDeadlineExceeded if that took too long: processes of the child's user, or ones with
// the program open, can delay it. The child takes on the restrictions, unless they are nil.
func (c *Children) Start(path string, argv []string, attr *syscall.ProcAttr, restrict *spawn.Restrictions) (ch *Child, err error) {
	var forked *spawn.Child
	done := make(chan struct{})
	c.forks <- func() {
		defer close(done)
		c.forkMu.Lock()
		defer c.forkMu.Unlock()
		if forked, err = c.spawner.Start(path, argv, attr, restrict); err != nil {
			return
		}
		ch = &Child{c: c, PID: forked.PID}
		c.mu.Lock()
		c.running[ch.PID] = ch
		c.mu.Unlock()
	}
	<-done
	if err != nil {
		return nil, err
	}
	c.wakeReaper()
	if err = forked.Wait(c.cfg.Execute); errors.Is(err, os.ErrDeadlineExceeded) {
		err = ch.abort(forked)
	}
	if err == nil {
		c.cfg.Score.Set(ch.PID)
		return ch, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ch.ended { // else the pid may be reused
		delete(c.running, ch.PID)
	}
	return nil, err
}

// abort kills a child that took too long, unless it has executed the program after all.
func (ch *Child) abort(forked *spawn.Child) error {
	ch.c.mu.Lock()
	defer ch.c.mu.Unlock()
	if ch.ended { // the pid may be reused
		return forked.Wait(0)
	}
	err := forked.Abort()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		go forked.Wait(0) //nolint:errcheck // frees its memory whenever it ends
	}
	return err
}
