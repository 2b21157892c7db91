//go:build linux || freebsd

package children

import "syscall"

// wait waits for a child to end and reaps it. Without an error mu is held on return,
// so that the freed pid cannot be mistaken for the child's.
func (c *Children) wait() (pid int, ws syscall.WaitStatus, err error) {
	if pid, err = awaitEndedChild(); err != nil {
		return 0, 0, err
	}
	c.lockForReap(pid)
	if got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil); err != nil || got != pid {
		c.mu.Unlock()
		return 0, 0, syscall.EAGAIN
	}
	return pid, ws, nil
}
