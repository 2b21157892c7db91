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

// A child with a user namespace of its own must be forked, where others share
// their parent's memory until they execute something: the kernel copies the page
// tables of the whole parent, which then faults on each page that it writes. From
// a hostd of 100 MiB that takes 20 ms, from one of 1 GiB 150 ms, in which none of
// its threads gets memory. So hostd starts a launcher, which has next to none and
// forks in its stead; the kernel makes the child hostd's own (CLONE_PARENT).

const (
	launchArg = "launch"

	// RangeSize is how many uids a sandbox has where hostd is root.
	RangeSize = 1 << 16
)

// LaunchArgs are the arguments of a launcher, to be started with the descriptors,
// in the working directory and in the cgroups of Init, as hostd's own child. base
// is the first uid of the sandbox, 0 for the one of who runs hostd; name is what
// the process is called, and oomScore that of all in the sandbox. It writes the child's
// pid and a newline to the pipe of errors, or an error, and ends.
func LaunchArgs(name string, base uint32, oomScore int) []string {
	return []string{name, Arg, launchArg, strconv.FormatUint(uint64(base), 10), strconv.Itoa(oomScore)}
}

// launch is the launcher: it starts Init in namespaces of its own. args are those
// behind launchArg.
func launch(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("%s wants a uid and a score", launchArg)
	}
	base, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil {
		return err
	}
	// As long as this is who hostd is: what CAP_SYS_RESOURCE wrote nobody inside can lower.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(args[1]), 0); err != nil {
		return fmt.Errorf("let others live longer: %w", err)
	}
	if err := own(uintptr(base)); err != nil {
		return fmt.Errorf("become the sandbox's uid: %w", err)
	}
	files := inherited()
	// By descriptor: the path may lead through directories that are shut to the
	// sandbox's uid.
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
// user (inotify's instances, signals that wait, timers, message queues) it counts for
// the owners of all namespaces above, too: were that root, one sandbox could use up
// what all others and the host's root have.
func own(base uintptr) error {
	if base == 0 {
		return nil
	}
	runtime.LockOSThread() // for good: the launcher ends with it
	const noFixup = 1 << 2 // SECBIT_NO_SETUID_FIXUP
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, noFixup, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), base, ^uintptr(0)); errno != 0 {
		return errno
	}
	return nil
}

// inherited are the descriptors that this program was started with, by number.
func inherited() []*os.File {
	var files []*os.File
	for fd := uintptr(0); ; fd++ {
		flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 { // none, or one of the runtime's
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
		// Who is not uid 0 loses his capabilities when he executes something.
		attr.AmbientCaps = Needed()
	}
	return attr
}

// mappings are the uids of a sandbox, which are also its gids. Base 0 means the
// one uid of who runs hostd.
func mappings(base int) (uid, gid []syscall.SysProcIDMap) {
	if base == 0 {
		return []syscall.SysProcIDMap{{ContainerID: userID, HostID: os.Geteuid(), Size: 1}},
			[]syscall.SysProcIDMap{{ContainerID: userID, HostID: os.Getegid(), Size: 1}}
	}
	m := []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: RangeSize}}
	return m, m
}
