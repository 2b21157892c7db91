package live

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// OnThread calls f on a thread of its own, whose working directory, and no
// other's, is dir, and which ends afterwards. A child started by f inherits the
// directory; should it be in a new mount namespace, the kernel finds the
// directory again there, whoever may walk to it by its path. It has the normal
// priority, where hostd has a higher one.
func OnThread(dir string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		if unix.Gettid() == unix.Getpid() {
			// The runtime cannot end the main thread. It is held here while
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
		if err := beNormal(); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// Expendable has a process, and what it will start, end before all that serves
// sandboxes where the host has no memory left. See driver.OOMScore.
func Expendable(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(driver.OOMScore)), 0)
}

// beNormal gives up a priority that this thread, and what it starts, would have
// over others.
func beNormal() error {
	const normal = 20 // as the system call tells it; what is more goes before others
	p, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err == nil && p > normal {
		err = unix.Setpriority(unix.PRIO_PROCESS, 0, 0)
	}
	return os.NewSyscallError("setpriority", err)
}
