package shim

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"github.com/millrace/millrace/services/hostd/internal/spawn"
)

// forker forks everything that the shim starts, one after the other, for as long as the
// shim lives: on one thread, which alone is in the group in which the sandbox's
// processes are counted, and with the limit that they have and cannot raise. Where they have used up
// either, nothing can be started, but the shim still gets the threads that it needs;
// the runtime ends a program that gets none.
func (s *Shim) forker() {
	runtime.LockOSThread()
	s.enterForks()
	limit := reserve()
	s.spawner = spawn.New()
	s.spawner.Processes = limit.most()
	for f := range s.forks {
		limit.lower()
		f()
		limit.raise()
	}
}

// execute has the forker make a child, and waits until it has become the program. The
// error is os.ErrDeadlineExceeded if it took too long: whoever is the child's user, or has
// the program open, can hold it up.
func (s *Shim) execute(path string, argv []string, attr *syscall.ProcAttr) (c *child, err error) {
	var forked *spawn.Child
	done := make(chan struct{})
	s.forks <- func() {
		defer close(done)
		s.forking.Lock()
		defer s.forking.Unlock()
		if forked, err = s.spawner.Start(path, argv, attr); err != nil {
			return
		}
		c = &child{pid: forked.PID}
		s.mu.Lock()
		s.born[c.pid] = c
		s.mu.Unlock()
	}
	<-done
	if err != nil {
		return nil, err
	}
	s.nudge()
	if err = forked.Wait(s.cfg.Execute); errors.Is(err, os.ErrDeadlineExceeded) {
		err = s.abort(c, forked)
	}
	if err == nil {
		s.expend(c.pid)
		return c, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.ended { // else the pid may be another's
		delete(s.born, c.pid)
	}
	return nil, err
}

// abort kills a child that took too long, unless it has become the program after all.
func (s *Shim) abort(c *child, forked *spawn.Child) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ended { // the pid may be another's
		return forked.Wait(0)
	}
	err := forked.Abort()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		go forked.Wait(0) //nolint:errcheck // it lets go of its memory, whenever it ends
	}
	return err
}
