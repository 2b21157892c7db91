package shim

import (
	"runtime"
	"syscall"

	"github.com/millrace/millrace/events/process"
)

// forker forks everything that the shim starts, one after the other, for as long as the
// shim lives: on one thread, which alone is in the group in which the sandbox's
// processes are counted, and with the limit that they have. Where they have used up
// either, nothing can be started, but the shim still gets the threads that it needs;
// the runtime ends a program that gets none.
func (s *Shim) forker() {
	runtime.LockOSThread()
	s.enterForks()
	limit := reserve()
	for f := range s.forks {
		limit.lower()
		f()
		limit.raise()
	}
}

// fork is fork, by the forker.
func (s *Shim) fork(spec *process.Spec, path string, attr *syscall.ProcAttr) (pid int, err error) {
	done := make(chan struct{})
	s.forks <- func() {
		if pid, err = fork(spec, path, attr); err == nil {
			s.expend(pid)
		}
		close(done)
	}
	<-done
	return pid, err
}
