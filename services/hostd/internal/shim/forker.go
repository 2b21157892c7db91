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

// execute has the forker make a child, and waits until it has become the program. Since
// is Shim.reaps from before there was a child. The error is os.ErrDeadlineExceeded if it
// took too long: whoever is the child's user, or has the program open, can hold it up.
func (s *Shim) execute(path string, argv []string, attr *syscall.ProcAttr) (pid int, since uint64, err error) {
	var c *spawn.Child
	done := make(chan struct{})
	s.forks <- func() {
		defer close(done)
		s.mu.Lock()
		since = s.reaps
		s.mu.Unlock()
		c, err = s.spawner.Start(path, argv, attr)
	}
	<-done
	if err != nil {
		return 0, 0, err
	}
	s.nudge()
	if err = c.Wait(s.cfg.Execute); err == nil {
		s.expend(c.PID)
		return c.PID, since, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.mu.Lock()
		if e, ok := s.early[c.PID]; !ok || e.at <= since { // else the pid may be another's
			syscall.Kill(c.PID, syscall.SIGKILL) //nolint:errcheck // it may have ended
		}
		s.mu.Unlock()
		go c.Wait(0) //nolint:errcheck // it lets go of its memory, whenever it ends
	}
	return 0, 0, err
}
