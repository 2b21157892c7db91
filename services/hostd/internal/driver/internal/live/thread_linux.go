package live

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// OnThread calls f on a thread of its own, which ends afterwards and whose working
// directory, but no other thread's, is dir. A child started by f inherits the directory;
// if it is in a new mount namespace, the kernel finds the directory there, regardless of the
// permissions on its path. The thread has the normal priority, where hostd has a higher one.
func OnThread(dir string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		if unix.Gettid() == unix.Getpid() {
			// The runtime cannot end the main thread. It stays locked here while
			// another goroutine, which cannot be on it, does the work.
			defer runtime.UnlockOSThread()
			done <- OnThread(dir, f)
			return
		}
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			done <- os.NewSyscallError("unshare", err)
			return
		}
		if err := unix.Chdir(dir); err != nil {
			done <- &os.PathError{Op: "chdir", Path: dir, Err: err}
			return
		}
		if err := dropPriority(); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// SetOOMScore makes the kernel kill a process and its children before all that serve
// sandboxes when the host runs out of memory. See driver.OOMScore.
func SetOOMScore(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(driver.OOMScore)), 0)
}

// dropPriority gives up a raised priority of this thread, which its children would
// inherit.
func dropPriority() error {
	const normal = 20 // as the system call returns it; a higher value is a higher priority
	p, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err == nil && p > normal {
		err = unix.Setpriority(unix.PRIO_PROCESS, 0, 0)
	}
	return os.NewSyscallError("setpriority", err)
}
