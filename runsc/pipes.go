package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// stdioFlag passes a sandbox's standard files to its own process, in their order.
const stdioFlag = "--stdio-fds="

// onlyWrite makes a sandbox's own process open the sandbox's output pipes only for writing: a
// checkpoint reads all that it can from pipes, so that pending output would be in the
// checkpoint, and nowhere else. The driver passes each pipe opened for reading and writing, so
// that a reader always exists. That descriptor stays open, but gVisor does not use it.
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
		if err := closeForReading(fd); err != nil {
			return fmt.Errorf("reopen %s for writing only: %w", arg, err)
		}
	}
	return nil
}

// closeForReading replaces fd by another descriptor of the same file that is only for writing, and
// keeps the previous one under another number. The second call has no effect: the process
// executes itself again.
func closeForReading(fd int) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return err
	}
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	writes, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(writes)
	if _, err := unix.Dup(fd); err != nil {
		return err
	}
	return unix.Dup3(writes, fd, 0)
}
