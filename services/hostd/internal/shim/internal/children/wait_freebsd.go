package children

import "golang.org/x/sys/unix"

const pAll = 7 // P_ALL of sys/wait.h

// awaitEndedChild waits until a child has ended, without reaping it. ECHILD: there is no child.
func awaitEndedChild() (pid int, err error) {
	got, _, errno := unix.Syscall6(unix.SYS_WAIT6, pAll, 0, 0, unix.WEXITED|unix.WNOWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(got), nil
}
