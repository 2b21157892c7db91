package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// stdioFlag names each of a sandbox's standard files to its own process, in their order.
const stdioFlag = "--stdio-fds="

// onlyWrite has a sandbox's own process only write to what the sandbox's output goes to: a
// checkpoint reads all that it can of pipes, and what was on its way out would be in the
// checkpoint, and nowhere else. The driver gives each pipe to read and to write, so that
// there is always one who reads. He stays, and gVisor does not know of him.
func onlyWrite(args []string) error {
	files := 0
	for _, arg := range args {
		text, ok := strings.CutPrefix(arg, stdioFlag)
		if !ok {
			continue
		}
		if files++; files == 1 { // its input
			continue
		}
		fd, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		if err := shut(fd); err != nil {
			return fmt.Errorf("shut what %s names to who reads: %w", arg, err)
		}
	}
	return nil
}

// shut puts another descriptor of the same file in the place of fd, that only writes, and
// keeps the one before at a new place. It does nothing the second time: the process executes
// itself anew.
func shut(fd int) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return err
	}
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	writes, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(writes) //nolint:errcheck // it is at fd
	if _, err := unix.Dup(fd); err != nil {
		return err
	}
	return unix.Dup3(writes, fd, 0)
}
