//go:build linux

package vminit

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dup is a descriptor and its number in the new program.
type dup struct{ from, to int }

// sources returns pointers to the descriptors to be renumbered.
func sources(files []dup) []*int {
	all := make([]*int, 0, len(files)+1)
	for i := range files {
		all = append(all, &files[i].from)
	}
	return all
}

// replace executes the program behind a descriptor in place of this one. It returns
// only on error, and then the thread is unusable.
func replace(program int, argv, env []string, files []dup) error {
	args, err := syscall.SlicePtrFromStrings(argv)
	if err != nil {
		return err
	}
	vars, err := syscall.SlicePtrFromStrings(env)
	if err != nil {
		return err
	}
	empty, err := syscall.BytePtrFromString("")
	if err != nil {
		return err
	}
	// The runtime polls descriptors of its own, which may have these numbers. Its other
	// threads would lose their poller before they end: so this thread gets a descriptor table of
	// its own and becomes the process.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FILES); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	const high = 64 // above all numbers that are assigned
	for _, fd := range append(sources(files), &program) {
		if *fd, err = unix.FcntlInt(uintptr(*fd), unix.F_DUPFD_CLOEXEC, high); err != nil {
			return os.NewSyscallError("fcntl", err)
		}
	}
	for _, d := range files {
		if err := unix.Dup3(d.from, d.to, 0); err != nil {
			return os.NewSyscallError("dup3", err)
		}
	}
	_, _, errno := unix.Syscall6(unix.SYS_EXECVEAT, uintptr(program), uintptr(unsafe.Pointer(empty)),
		uintptr(unsafe.Pointer(&args[0])), uintptr(unsafe.Pointer(&vars[0])), unix.AT_EMPTY_PATH, 0)
	return os.NewSyscallError("execveat", errno)
}
