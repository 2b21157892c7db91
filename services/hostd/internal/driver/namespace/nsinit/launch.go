//go:build linux

package nsinit

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A child with a user namespace of its own must be forked, whereas others share
// their parent's memory until they execute something: the kernel copies the page
// tables of the whole parent, which then faults on each page that it writes. From
// a hostd of 100 MiB that takes 20 ms, from one of 1 GiB 150 ms, during which none of
// its threads gets memory. So hostd starts a launcher, which has almost none and
// forks instead; the kernel makes the child hostd's own (CLONE_PARENT).

const (
	launchArg = "launch"

	// RangeSize is the number of uids of a sandbox where hostd is root.
	RangeSize = 1 << 16
)

// LaunchArgs returns the arguments of a launcher, to be started with the descriptors,
// in the working directory and in the cgroups of Init, as hostd's own child. base
// is the first uid of the sandbox, 0 for hostd's own uid; name is the name of
// the process, and oomScore that of all in the sandbox. The launcher writes the child's
// pid and a newline to the pipe of errors, or an error, and ends.
func LaunchArgs(name string, base uint32, oomScore int) []string {
	return []string{name, Arg, launchArg, strconv.FormatUint(uint64(base), 10), strconv.Itoa(oomScore)}
}

// launch is the launcher: it starts Init in namespaces of its own. args follow
// launchArg.
func launch(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("%s requires a uid and a score", launchArg)
	}
	base, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil {
		return err
	}
	// While still with hostd's uid: processes inside cannot lower what CAP_SYS_RESOURCE wrote.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(args[1]), 0); err != nil {
		return fmt.Errorf("set oom_score_adj: %w", err)
	}
	if err := own(uintptr(base)); err != nil {
		return fmt.Errorf("set the sandbox's uid: %w", err)
	}
	files := inherited()
	// By descriptor: the path may lead through directories that the sandbox's uid may not
	// enter.
	self := filepath.Join("/proc/self/fd", strconv.Itoa(fdShim))
	child, err := os.StartProcess(self, []string{os.Args[0], Arg}, &os.ProcAttr{Env: []string{}, Sys: cloneAttr(int(base)), Files: files})
	if err != nil {
		return fmt.Errorf("start in namespaces: %w", err)
	}
	_, err = fmt.Fprintln(files[fdError], child.Pid)
	return err
}

// own makes this thread, and so the user namespace that it makes, belong to the
// sandbox's first uid, and keeps its capabilities. What the kernel counts for a
// user (inotify instances, pending signals, timers, message queues) it counts also for
// the owners of all parent namespaces: if that were root, one sandbox could use up
// the limits of all others and of the host's root.
func own(base uintptr) error {
	if base == 0 {
		return nil
	}
	runtime.LockOSThread() // permanently: the launcher ends with it
	const noFixup = 1 << 2 // SECBIT_NO_SETUID_FIXUP
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, noFixup, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), base, ^uintptr(0)); errno != 0 {
		return errno
	}
	return nil
}

// inherited returns the descriptors that this program was started with, by number.
func inherited() []*os.File {
	var files []*os.File
	for fd := uintptr(0); ; fd++ {
		flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 { // not open, or one of the runtime's
			return files
		}
		files = append(files, os.NewFile(fd, "inherited"))
	}
}

func cloneAttr(base int) *syscall.SysProcAttr {
	uid, gid := mappings(base)
	attr := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS |
			syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_PARENT,
		UidMappings: uid, GidMappings: gid,
		Setsid: true,
	}
	if base != 0 {
		attr.GidMappingsEnableSetgroups = true
		attr.Credential = &syscall.Credential{Uid: 0, Gid: 0}
	} else {
		// A process that is not uid 0 loses its capabilities when it executes something.
		attr.AmbientCaps = Needed()
	}
	return attr
}

// mappings returns the uids of a sandbox, which are also its gids. Base 0 means only
// hostd's own uid.
func mappings(base int) (uid, gid []syscall.SysProcIDMap) {
	if base == 0 {
		return []syscall.SysProcIDMap{{ContainerID: userID, HostID: os.Geteuid(), Size: 1}},
			[]syscall.SysProcIDMap{{ContainerID: userID, HostID: os.Getegid(), Size: 1}}
	}
	m := []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: RangeSize}}
	return m, m
}
