package shim

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"github.com/millrace/millrace/services/hostd/internal/spawn"
)

// forker forks all processes of the shim, one after the other, until the shim ends. It runs
// on a thread of its own, the only one in the cgroup that counts the sandbox's processes,
// and lowers the process limit to theirs, which they cannot raise. When they have used up
// either, no process can be started, but the shim still gets the threads that it needs: the
// runtime aborts a program that gets none.
func (s *Shim) forker() {
	runtime.LockOSThread()
	s.enterForks()
	limit := reserveProcesses()
	s.spawner = spawn.New()
	s.spawner.Processes = limit.max()
	for f := range s.forks {
		limit.lower()
		f()
		limit.raise()
	}
}

// execute makes the forker fork a child and waits until it has executed the program. The
// error is os.ErrDeadlineExceeded if that took too long: processes of the child's user, or
// ones with the program open, can delay it.
func (s *Shim) execute(path string, argv []string, attr *syscall.ProcAttr) (c *child, err error) {
	var forked *spawn.Child
	done := make(chan struct{})
	s.forks <- func() {
		defer close(done)
		s.forkMu.Lock()
		defer s.forkMu.Unlock()
		if forked, err = s.spawner.Start(path, argv, attr); err != nil {
			return
		}
		c = &child{pid: forked.PID}
		s.mu.Lock()
		s.unclaimed[c.pid] = c
		s.mu.Unlock()
	}
	<-done
	if err != nil {
		return nil, err
	}
	s.wakeReaper()
	if err = forked.Wait(s.cfg.Execute); errors.Is(err, os.ErrDeadlineExceeded) {
		err = s.abort(c, forked)
	}
	if err == nil {
		s.setOOMScore(c.pid)
		return c, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.ended { // else the pid may be reused
		delete(s.unclaimed, c.pid)
	}
	return nil, err
}

// abort kills a child that took too long, unless it has executed the program after all.
func (s *Shim) abort(c *child, forked *spawn.Child) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ended { // the pid may be reused
		return forked.Wait(0)
	}
	err := forked.Abort()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		go forked.Wait(0) //nolint:errcheck // frees its memory whenever it ends
	}
	return err
}
