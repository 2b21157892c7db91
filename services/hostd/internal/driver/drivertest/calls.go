//go:build linux

package drivertest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forbiddenCalls are system calls that must fail in a sandbox. Their arguments make them harmless,
// or nearly so, if they succeed.
func forbiddenCalls() map[string]func() error {
	params := make([]byte, 256)
	var ring uintptr
	return map[string]func() error{
		"mount":             func() error { return unix.Mount("tmpfs", "/mnt", "tmpfs", 0, "") },
		"umount":            func() error { return unix.Unmount("/proc", unix.MNT_DETACH) },
		"fsopen":            func() error { _, err := unix.Fsopen("tmpfs", 0); return err },
		"pivot_root":        func() error { return unix.PivotRoot("/", "/") },
		"unshare user":      rawCall(unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0, 0),
		"unshare net":       rawCall(unix.SYS_UNSHARE, unix.CLONE_NEWNET, 0, 0),
		"unshare mount":     rawCall(unix.SYS_UNSHARE, unix.CLONE_NEWNS, 0, 0),
		"unshare cgroup":    rawCall(unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP, 0, 0),
		"setns":             rawCall(unix.SYS_SETNS, ^uintptr(0), 0, 0),
		"clone3":            rawCall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&params[0])), 0, 0),
		"open_tree":         func() error { return closeFd(unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE)) },
		"move_mount":        rawCall(unix.SYS_MOVE_MOUNT, ^uintptr(0), 0, 0),
		"mount_setattr":     rawCall(unix.SYS_MOUNT_SETATTR, ^uintptr(0), 0, 0),
		"fanotify_init":     rawCall(unix.SYS_FANOTIFY_INIT, 0, 0, 0),
		"name_to_handle_at": rawCall(unix.SYS_NAME_TO_HANDLE_AT, 0, 0, 0),
		"process_madvise":   rawCall(unix.SYS_PROCESS_MADVISE, ^uintptr(0), 0, 0),
		"memfd_secret":      rawCall(unix.SYS_MEMFD_SECRET, 0, 0, 0),
		"move_pages":        rawCall(unix.SYS_MOVE_PAGES, 1, 0, 0),
		"quotactl_fd":       rawCall(unix.SYS_QUOTACTL_FD, ^uintptr(0), 0, 0),
		"request_key":       rawCall(unix.SYS_REQUEST_KEY, 0, 0, 0),
		"clock_settime":     rawCall(unix.SYS_CLOCK_SETTIME, 0, 0, 0),
		"adjtimex":          rawCall(unix.SYS_ADJTIMEX, 0, 0, 0),
		"setdomainname":     rawCall(unix.SYS_SETDOMAINNAME, 0, 0, 0),
		"vhangup":           rawCall(unix.SYS_VHANGUP, 0, 0, 0),
		"lookup_dcookie":    rawCall(unix.SYS_LOOKUP_DCOOKIE, 0, 0, 0),
		"clone user":        cloneUser,
		"ptrace":            rawCall(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0),
		"process_vm_readv":  rawCall(unix.SYS_PROCESS_VM_READV, 1, 0, 0),
		"process_vm_writev": rawCall(unix.SYS_PROCESS_VM_WRITEV, 1, 0, 0),
		"pidfd_getfd":       rawCall(unix.SYS_PIDFD_GETFD, 0, 0, 0),
		"kcmp":              rawCall(unix.SYS_KCMP, 1, 1, 0),
		"bpf":               rawCall(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&params[0])), 64),
		"perf_event_open":   rawCall(unix.SYS_PERF_EVENT_OPEN, uintptr(unsafe.Pointer(&params[0])), 0, 0),
		"userfaultfd":       rawCall(unix.SYS_USERFAULTFD, 0, 0, 0),
		"io_uring_setup":    rawCall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params[0])), 0),
		"io_setup":          rawCall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&ring)), 0),
		"keyctl":            rawCall(unix.SYS_KEYCTL, 0, 0, 0),
		"add_key":           rawCall(unix.SYS_ADD_KEY, 0, 0, 0),
		"init_module":       rawCall(unix.SYS_INIT_MODULE, 0, 0, 0),
		"finit_module":      rawCall(unix.SYS_FINIT_MODULE, ^uintptr(0), 0, 0),
		"delete_module":     rawCall(unix.SYS_DELETE_MODULE, 0, 0, 0),
		"kexec_load":        rawCall(unix.SYS_KEXEC_LOAD, 0, 0, 0),
		"open_by_handle_at": rawCall(unix.SYS_OPEN_BY_HANDLE_AT, 0, 0, 0),
		"reboot":            rawCall(unix.SYS_REBOOT, 0, 0, 0),
		"settimeofday":      rawCall(unix.SYS_SETTIMEOFDAY, 0, 0, 0),
		"swapon":            rawCall(unix.SYS_SWAPON, 0, 0, 0),
		"syslog":            rawCall(unix.SYS_SYSLOG, 10, 0, 0),
		"acct":              rawCall(unix.SYS_ACCT, 0, 0, 0),
		"quotactl":          rawCall(unix.SYS_QUOTACTL, 0, 0, 0),
		"mknod device":      func() error { return unix.Mknod("/tmp/device", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) },
		"sethostname":       func() error { return unix.Sethostname([]byte("other")) },
		"socket vsock":      socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		"socket packet":     socket(unix.AF_PACKET, unix.SOCK_RAW, 0),
		"socket alg":        socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
		"socket bluetooth":  socket(unix.AF_BLUETOOTH, unix.SOCK_RAW, 0),
		"socket audit":      socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT),
		"socket netfilter":  socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER),
		"socket uevent":     socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT),
		"socket xdp":        socket(unix.AF_XDP, unix.SOCK_RAW, 0),
		"socket can":        socket(unix.AF_CAN, unix.SOCK_RAW, 0),
		"socket tipc":       socket(unix.AF_TIPC, unix.SOCK_SEQPACKET, 0),
		"socket key":        socket(unix.AF_KEY, unix.SOCK_RAW, 2),
		"socketpair vsock":  rawCall(unix.SYS_SOCKETPAIR, unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		"socket raw inet":   socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP),
		"socket mptcp":      socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP),
		"socket sctp":       socket(unix.AF_INET, unix.SOCK_SEQPACKET, 0),
		"TCP_ULP":           useUnknownULP,
		"SO_ATTACH_FILTER":  attachFilter,
		"prlimit of pid 1":  rawCall(unix.SYS_PRLIMIT64, 1, unix.RLIMIT_CORE, uintptr(unsafe.Pointer(&params[0]))),
		"TIOCSTI":           rawCall(unix.SYS_IOCTL, 0, unix.TIOCSTI, 0),
	}
}

// rawCall returns a system call whose result is a descriptor, or irrelevant.
func rawCall(nr, a, b, c uintptr) func() error {
	return func() error {
		fd, _, errno := unix.Syscall6(nr, a, b, c, 0, 0, 0)
		if errno != 0 {
			return errno
		}
		if int(fd) > 2 {
			unix.Close(int(fd))
		}
		return nil
	}
}

// cloneUser starts a program in a user namespace. Where that is permitted, the call
// alone would leave a second copy of this program.
func cloneUser() error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	err := cmd.Run()
	for _, refused := range []error{unix.EPERM, unix.ENOSYS, unix.ENOSPC, unix.EUSERS} {
		if errors.Is(err, refused) {
			return err
		}
	}
	return nil
}

func socket(family, kind, proto int) func() error {
	return rawCall(unix.SYS_SOCKET, uintptr(family), uintptr(kind), uintptr(proto))
}

// useUnknownULP requests an unknown protocol to take over a connection.
func useUnknownULP() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	if err = unix.SetsockoptString(fd, unix.SOL_TCP, unix.TCP_ULP, "none"); errors.Is(err, unix.ENOENT) {
		return nil // the kernel looked for it
	}
	return err
}

// attachFilter attaches a filter to a socket that accepts everything.
func attachFilter() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	all := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: ^uint32(0)}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &all})
}

func closeFd(fd int, err error) error {
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// allowedCalls are calls that programs need and that must work inside.
func allowedCalls() map[string]func() error {
	open := func(family, kind, proto int) func() error {
		return func() error {
			fd, err := unix.Socket(family, kind, proto)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}
	}
	return map[string]func() error{
		"socket unix":  open(unix.AF_UNIX, unix.SOCK_STREAM, 0),
		"socket inet":  open(unix.AF_INET, unix.SOCK_STREAM, 0),
		"socket inet6": open(unix.AF_INET6, unix.SOCK_STREAM, 0),
		"socket route": open(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE),
		"memfd_create": func() error {
			fd, err := unix.MemfdCreate("x", 0)
			if err == nil {
				unix.Close(fd)
			}
			return err
		},
		"no route": lookUpRoutes,
		"loopback": dialLoopback,
		"ptmx": func() error {
			fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
			if err == nil {
				unix.Close(fd)
			}
			return err
		},
	}
}

// lookUpRoutes looks up the route to a documentation address. A connected
// datagram socket sends nothing.
func lookUpRoutes() error {
	for _, to := range []unix.Sockaddr{
		&unix.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 1}},
		&unix.SockaddrInet6{Port: 9, Addr: [16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1}},
	} {
		family := unix.AF_INET
		if _, ok := to.(*unix.SockaddrInet6); ok {
			family = unix.AF_INET6
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		err = unix.Connect(fd, to)
		unix.Close(fd)
		if err == nil {
			return fmt.Errorf("there is a route to %v", to)
		}
		if !errors.Is(err, unix.ENETUNREACH) {
			return fmt.Errorf("the route to %v: %w, want no route", to, err)
		}
	}
	return nil
}

// dialLoopback sends a word through a server on the loopback.
func dialLoopback() error {
	l, err := net.Listen("tcp", "127.0.0.1:80")
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.WriteString(c, "word")
			c.Close()
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	b, err := io.ReadAll(c)
	if err == nil && string(b) != "word" {
		err = fmt.Errorf("read %q", b)
	}
	return err
}

// setUID gives only this thread another uid, with which it loses its capabilities; a
// negative uid changes nothing.
func setUID(uid int) error {
	if uid <= 0 || uid == unix.Geteuid() {
		return nil
	}
	id := uintptr(uid)
	unix.RawSyscall(unix.SYS_SETRESGID, id, id, id)
	_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id)
	return errnoError(errno)
}

// tryCall makes a call as uid, or as the shim's user, and returns its error's
// text; empty if it succeeded.
func tryCall(name string, uid int) string {
	runtime.LockOSThread() // and never unlocked: a thread that left its namespace must not be reused
	if err := setUID(uid); err != nil {
		return "become the user: " + err.Error()
	}
	call := forbiddenCalls()[name]
	if call == nil {
		call = allowedCalls()[name]
	}
	if call == nil {
		return "no such call"
	}
	if err := call(); err != nil {
		return err.Error()
	}
	return ""
}
