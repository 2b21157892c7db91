package stdio

import "golang.org/x/sys/unix"

// terminal makes a terminal. The program's side is opened through the master, so that it is
// the right one, regardless of the mount at /dev/pts.
func terminal() (ours, program int, err error) {
	ours, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	if err = unix.IoctlSetPointerInt(ours, unix.TIOCSPTLCK, 0); err == nil {
		peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(ours), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if errno == 0 {
			return ours, int(peer), nil
		}
		err = errno
	}
	unix.Close(ours)
	return 0, 0, err
}
