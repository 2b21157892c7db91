//go:build linux

// Package nsinit is the part of the namespace driver inside the sandbox: it runs between
// the clone of the namespaces and the shim. It imports little, because it is
// part of the shim's binary.
//
// The driver makes a launcher (see LaunchArgs) start the shim's binary with Arg as
// its first argument in new user, pid, mount, net, ipc and uts namespaces and
// with these descriptors:
//
//	3  the shim's listening socket
//	4  its count of out-of-memory kills, and
//	5  the file of the group of its forks, both kept open if Spec.KeepGroup
//	6  the shim's binary
//	7  a pipe: the Spec
//	8  a pipe: a NUL when all is done but to execute the shim, then an error or
//	   the end; anything without the NUL in front of it is an error too
//	9  a mount: the template's tree, if Spec.Tree and Spec.HasRoot
//	10 a mount: a snapshot's layers, if Spec.Below and Spec.HasRoot
//	11 a mount: the sandbox's own disk, if Spec.Disk
//	12 and on: mounts, the volumes, if Spec.HasRoot
//
// If Spec.Program is executed instead of the shim, 9 is a mount with Spec.Program.Device, if
// Spec.HasRoot, and those from 12 on are Spec.Program.Keep descriptors of the program's.
//
// The driver writes the Spec when it has recorded the process. If it dies
// before that, the pipe ends and so does Init: a sandbox that is not recorded is
// not created.
//
// Its working directory is the sandbox's own on the host's disk. The kernel
// keeps it across the change of the mount namespace, so that the sandbox's uid needs no
// permission on the path to it.
//
// # Users
// Where hostd is root of the machine, the sandbox has 65,536 uids of its own and
// starts as their uid 0. Otherwise it has one uid, 1000, which is the host's
// user; it keeps that user's supplementary groups, which the kernel does not let it drop.
//
// # The result
// A root file system without the host's files but /usr and the driver's choice of
// /etc; capabilities that are valid only inside (see caps.go); no way to gain
// privileges; a system call filter (see filter.go).
package nsinit

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	fdGroup = 4 // two descriptors
	fdShim  = 6
	fdSpec  = 7
	fdError = 8
	fdTree  = 9
	fdBelow = 10
	fdDisk  = 11

	fdVolumes = 12

	// FirstKept is the first descriptor of a Spec.Program besides the standard ones.
	FirstKept = fdVolumes
)

// Init makes this process the shim of a new sandbox. It returns only on error,
// and in a trial; its caller must then exit. It must be called from main before
// anything else, when os.Args[1] is Arg; args are the following ones, which only
// the launcher has; it returns when it is done.
func Init(args []string) error {
	if len(args) > 0 && args[0] == launchArg {
		return report(launch(args[1:]))
	}
	if len(args) > 0 {
		return errors.New(Arg + " takes no arguments")
	}
	// User ids, capabilities and the filter belong to a thread, and the thread
	// that executes the shim is the one that remains.
	runtime.LockOSThread()
	for _, fd := range []int{fdShim, fdSpec, fdError, fdTree, fdBelow, fdDisk} {
		unix.CloseOnExec(fd)
	}
	return report(run())
}

// report sends the driver an error.
func report(err error) error {
	if err != nil {
		unix.Write(fdError, []byte(err.Error())) //nolint:errcheck // fails only if the driver has ended
	}
	return err
}

func run() error {
	pipe := os.NewFile(fdSpec, "spec")
	if pipe == nil {
		return errors.New("not started by the namespace driver")
	}
	s, err := readSpec(pipe)
	if err != nil {
		return fmt.Errorf("read spec: %w", err)
	}
	if err := makeView(s); err != nil {
		return err
	}
	last := []step{{"give up privileges", dropPrivileges}, {"filter system calls", func(*Spec) error { return installFilter() }}}
	if s.mayGain() {
		slices.Reverse(last) // without no_new_privs, a filter requires CAP_SYS_ADMIN
	}
	inside := []step{{"loopback", loopback}, {"share", share}, {"time namespace", newTime}, {"mask /proc", maskProc}, {"boot id", newBootID}}
	if s.Program.Path != "" {
		inside = nil // the program needs none of them
	}
	return s.run(slices.Concat([]step{
		{"set host name", func(s *Spec) error { return unix.Sethostname([]byte(s.Hostname)) }},
	}, inside, []step{
		{"cgroup namespace", func(*Spec) error { return unix.Unshare(unix.CLONE_NEWCGROUP) }},
		{"resource limits", setLimits},
	}, last, []step{{"execute", execute}}))
}

// loopback brings up the only interface.
func loopback(*Spec) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return err
	}
	// A server in a sandbox may use port 80 as any user.
	os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0) //nolint:errcheck // optional
	return nil
}

// share leaves other sandboxes a part of what the kernel counts for one user (see own):
// where hostd is an ordinary user, all sandboxes are that user.
func share(s *Spec) error {
	if s.HasRoot {
		return nil
	}
	for _, n := range []string{"instances", "watches"} {
		raw, err := os.ReadFile("/proc/sys/fs/inotify/max_user_" + n)
		all, nerr := strconv.Atoi(strings.TrimSpace(string(raw)))
		if err != nil || nerr != nil {
			continue
		}
		os.WriteFile("/proc/sys/user/max_inotify_"+n, []byte(strconv.Itoa(all/Sharers)), 0) //nolint:errcheck // some containers forbid it
	}
	return nil
}

// Sharers is the number of sandboxes of one user that can together use up its limits.
const Sharers = 4

func setLimits(s *Spec) error {
	for _, l := range s.Limits {
		var old unix.Rlimit
		if err := unix.Prlimit(0, int(l.Resource), nil, &old); err != nil {
			return err
		}
		hard := min(l.Max+l.Spare, old.Max)
		if err := unix.Prlimit(0, int(l.Resource), &unix.Rlimit{Cur: min(l.Max, hard), Max: hard}, nil); err != nil {
			return err
		}
	}
	return nil
}

// execute turns this process into the shim, which inherits only descriptor 3, and 4 and 5
// if requested; or into the program.
func execute(s *Spec) error {
	argv, err := syscall.SlicePtrFromStrings(s.Argv)
	if err != nil {
		return err
	}
	env, err := syscall.SlicePtrFromStrings(s.Env)
	if err != nil {
		return err
	}
	file, err := syscall.BytePtrFromString(s.Program.Path)
	if err != nil {
		return err
	}
	if err := s.keepDescriptors(); err != nil {
		return err
	}
	if s.Program.DiesWithParent {
		// If hostd has ended already, the write below fails.
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return err
		}
	}
	if _, err := unix.Write(fdError, []byte{0}); err != nil || s.Trial {
		return err
	}
	// A path that begins with a slash ignores the descriptor, and an empty one means the shim.
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, fdShim, uintptr(unsafe.Pointer(file)),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0])), unix.AT_EMPTY_PATH, 0)
	return errno
}

// keepDescriptors marks all descriptors close-on-exec but those that the program keeps.
func (s *Spec) keepDescriptors() error {
	first, last := uint(fdGroup-1), uint(fdGroup-1) // of those that it keeps
	switch {
	case s.Program.Path != "":
		first, last = FirstKept, FirstKept+uint(s.Program.Keep)-1
	case s.KeepGroup:
		last = fdShim - 1
	}
	const most = ^uint(0) >> 1
	if first > fdGroup-1 {
		if err := unix.CloseRange(fdGroup-1, first-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
			return err
		}
	}
	return unix.CloseRange(last+1, most, unix.CLOSE_RANGE_CLOEXEC)
}
