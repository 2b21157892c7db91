package stdio

import "golang.org/x/sys/unix"

// Modes of a pipe. The owner may open it both ways, as a user's own pipe. Another user that
// the program becomes, by sudo or su, may only do what the program's end can do already.
// Only a process that has the pipe open can reach it by a path.
const (
	readMode  = 0o644
	writeMode = 0o622
)

// Input returns a pipe from which a program of the user reads.
func Input(uid int) (ours, program int, err error) {
	program, ours, err = pipe()
	if err != nil {
		return 0, 0, err
	}
	setOwner(program, uid, readMode)
	return ours, program, nil
}

// Output returns a pipe to which a program of the user writes.
func Output(uid int) (ours, program int, err error) {
	ours, program, err = pipe()
	if err != nil {
		return 0, 0, err
	}
	setOwner(program, uid, writeMode)
	return ours, program, nil
}

// Terminal returns a terminal of the user. Its mode is that of the mounted devpts.
func Terminal(uid int) (ours, program int, err error) {
	ours, program, err = terminal()
	if err != nil {
		return 0, 0, err
	}
	chown(program, uid)
	return ours, program, nil
}

// setOwner changes the owner and mode of a pipe. If the kernel refuses, the program still has
// its ends, and only opening them by path fails: gVisor keeps the mode of a pipe at 0600,
// and on FreeBSD and macOS only files have owners.
func setOwner(pipe, uid int, mode uint32) {
	unix.Fchmod(pipe, mode) //nolint:errcheck // see above
	chown(pipe, uid)
}

func chown(fd, uid int) {
	if uid != unix.Geteuid() {
		unix.Fchown(fd, uid, -1) //nolint:errcheck // see give
	}
}
