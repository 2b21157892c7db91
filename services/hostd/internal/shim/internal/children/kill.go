package children

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// NoTerminal stands for the terminal of a process that has none.
const NoTerminal = -1

// Signal sends a signal to the child's group, and to the foreground group of its terminal. If
// the terminal cannot report that group, as in gVisor, SIGKILL also hangs up the session. It
// returns ESRCH once the group is empty.
func (ch *Child) Signal(sig syscall.Signal, terminal int) error {
	ch.c.mu.Lock()
	defer ch.c.mu.Unlock()
	if ch.ended && !ch.groupRemains() {
		return syscall.ESRCH
	}
	if terminal != NoTerminal && !ch.ended {
		switch group, known := foreground(terminal); {
		case known && group > 1 && group != ch.PID:
			syscall.Kill(-group, sig)
		case !known && sig == syscall.SIGKILL:
			hangUp(ch.PID)
		}
	}
	return syscall.Kill(-ch.PID, sig)
}

// foreground returns the foreground process group of a terminal, or 0, and whether the
// terminal can report it.
func foreground(tty int) (group int, known bool) {
	group, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP)
	return group, err == nil
}

// groupRemains reports whether processes remain in the group of a child that has ended. As
// long as they do, its pid is not reused. Once the group was found empty, or the pid in use
// again, the number may be that of another group and is never again the child's. mu is held.
func (ch *Child) groupRemains() bool {
	if !ch.groupEmpty {
		empty := syscall.Kill(-ch.PID, 0) == syscall.ESRCH
		ch.groupEmpty = empty || syscall.Kill(ch.PID, 0) != syscall.ESRCH
	}
	return !ch.groupEmpty
}

// Rounds of KillAll: a process that starts during one round is found in the next.
const (
	killRounds = 200
	killPause  = 5 * time.Millisecond
)

// KillAll kills everything that runs in the sandbox, until nothing is left or the rounds
// are used up.
func (c *Children) KillAll() {
	c.wakeReaper() // wake reap: a child forked elsewhere may have ended
	for range killRounds {
		if c.cfg.PID1 {
			if err := syscall.Kill(-1, syscall.SIGKILL); err == syscall.ESRCH {
				return
			}
		} else {
			left := descendants(os.Getpid())
			if len(left) == 0 {
				return
			}
			for _, pid := range left {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		time.Sleep(killPause)
	}
}
