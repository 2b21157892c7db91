package children

import "syscall"

// wait waits for a child to end and reaps it. Without an error mu is held on return, a
// moment after the pid became free.
func (c *Children) wait() (pid int, ws syscall.WaitStatus, err error) {
	if pid, err = syscall.Wait4(-1, &ws, 0, nil); err != nil {
		return 0, 0, err
	}
	c.lockForReap(pid)
	return pid, ws, nil
}
