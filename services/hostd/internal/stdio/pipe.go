//go:build !darwin

package stdio

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// pipe makes a pipe with close-on-exec ends.
func pipe() (r, w int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return 0, 0, fmt.Errorf("pipe: %w", err)
	}
	return p[0], p[1], nil
}
