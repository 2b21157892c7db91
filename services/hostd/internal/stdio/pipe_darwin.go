package stdio

import (
	"fmt"
	"syscall"
)

// pipe makes a pipe with close-on-exec ends.
func pipe() (r, w int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	var p [2]int
	if err := syscall.Pipe(p[:]); err != nil {
		return 0, 0, fmt.Errorf("pipe: %w", err)
	}
	syscall.CloseOnExec(p[0])
	syscall.CloseOnExec(p[1])
	return p[0], p[1], nil
}
