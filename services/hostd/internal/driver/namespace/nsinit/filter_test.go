//go:build linux

package nsinit

import (
	"testing"

	"golang.org/x/sys/unix"
)

// call is the input of a filter.
type call struct {
	nr, arch uint32
	args     [6]uint64
}

// word returns the 32-bit word of struct seccomp_data at offset k.
func (c call) word(k uint32) uint32 {
	switch {
	case k == dataNr:
		return c.nr
	case k == dataArch:
		return c.arch
	case k >= dataArgs:
		arg := c.args[(k-dataArgs)/8]
		if (k-dataArgs)%8 == 4 {
			arg >>= 32
		}
		return uint32(arg)
	}
	return 0
}

// eval runs a filter as the kernel does.
func eval(t *testing.T, prog []unix.SockFilter, c call) uint32 {
	t.Helper()
	var a uint32
	for pc := 0; pc < len(prog); pc++ {
		in := prog[pc]
		jump := func(yes bool) {
			if yes {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		}
		switch in.Code {
		case opLoad:
			a = c.word(in.K)
		case opEq:
			jump(a == in.K)
		case opGe:
			jump(a >= in.K)
		case opSet:
			jump(a&in.K != 0)
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(in.K)
		case opAnd:
			a &= in.K
		case opRet:
			return in.K
		default:
			t.Fatalf("instruction %d: code %#x", pc, in.Code)
		}
	}
	t.Fatal("the program runs off its end")
	return 0
}

func TestFilter(t *testing.T) {
	const high = 1 << 32 // must be ignored
	for _, tt := range []struct {
		name string
		nr   uint32
		args [6]uint64
		want uint32
	}{
		{"read", unix.SYS_READ, [6]uint64{}, retAllow},
		{"execve", unix.SYS_EXECVE, [6]uint64{}, retAllow},
		{"the highest allowed", unix.SYS_GETXATTRAT, [6]uint64{}, retAllow},
		{"mount", unix.SYS_MOUNT, [6]uint64{}, retPerm},
		{"ptrace of a child", unix.SYS_PTRACE, [6]uint64{unix.PTRACE_TRACEME}, retPerm},
		{"unshare", unix.SYS_UNSHARE, [6]uint64{}, retPerm},
		{"setns", unix.SYS_SETNS, [6]uint64{}, retPerm},
		{"bpf", unix.SYS_BPF, [6]uint64{}, retPerm},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, [6]uint64{}, retPerm},
		{"io_uring_register", unix.SYS_IO_URING_REGISTER, [6]uint64{}, retPerm},
		{"keyctl", unix.SYS_KEYCTL, [6]uint64{}, retPerm},
		{"kexec_file_load", unix.SYS_KEXEC_FILE_LOAD, [6]uint64{}, retPerm},
		{"open_tree", unix.SYS_OPEN_TREE, [6]uint64{}, retPerm},
		{"a call from the future", 9999, [6]uint64{}, retNoSys},
		{"an x32 call", 1<<30 | unix.SYS_READ, [6]uint64{}, retNoSys},
		{"a thread", unix.SYS_CLONE, [6]uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, retAllow},
		{"a fork", unix.SYS_CLONE, [6]uint64{uint64(unix.SIGCHLD)}, retAllow},
		{"a fork into a user namespace", unix.SYS_CLONE, [6]uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, retPerm},
		{"a fork into a mount namespace", unix.SYS_CLONE, [6]uint64{high | unix.CLONE_NEWNS}, retPerm},
		{"clone3", unix.SYS_CLONE3, [6]uint64{}, retNoSys},
		{"a unix socket", unix.SYS_SOCKET, [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM}, retAllow},
		{"an inet socket", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_DGRAM}, retAllow},
		{"an inet6 socket", unix.SYS_SOCKET, [6]uint64{unix.AF_INET6, unix.SOCK_STREAM}, retAllow},
		{"a route socket", unix.SYS_SOCKET, [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, retAllow},
		{"another netlink socket", unix.SYS_SOCKET, [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, retFamily},
		{"a vsock", unix.SYS_SOCKET, [6]uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, retFamily},
		{"a vsock behind a high word", unix.SYS_SOCKET, [6]uint64{high | unix.AF_VSOCK, unix.SOCK_STREAM}, retFamily},
		{"a packet socket", unix.SYS_SOCKET, [6]uint64{unix.AF_PACKET, unix.SOCK_RAW}, retFamily},
		{"a socket that is closed when it executes", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, unix.IPPROTO_TCP}, retAllow},
		{"a ping", unix.SYS_SOCKET, [6]uint64{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6}, retAllow},
		{"MPTCP", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, retProto},
		{"SCTP", unix.SYS_SOCKET, [6]uint64{unix.AF_INET6, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP}, retProto},
		{"SCTP behind a high word", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_STREAM, high | unix.IPPROTO_SCTP}, retProto},
		{"SCTP by its type", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_SEQPACKET}, retType},
		{"a raw socket", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP}, retPerm},
		{"an option", unix.SYS_SETSOCKOPT, [6]uint64{5, unix.SOL_TCP, unix.TCP_NODELAY}, retAllow},
		{"another level's option", unix.SYS_SETSOCKOPT, [6]uint64{5, unix.SOL_SOCKET, unix.TCP_ULP}, retAllow},
		{"TLS in the kernel", unix.SYS_SETSOCKOPT, [6]uint64{5, unix.SOL_TCP, unix.TCP_ULP}, retOption},
		{"a filter of a socket", unix.SYS_SETSOCKOPT, [6]uint64{5, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}, retOption},
		{"a filter of sockets of one port", unix.SYS_SETSOCKOPT, [6]uint64{5, unix.SOL_SOCKET, high | unix.SO_ATTACH_REUSEPORT_CBPF}, retOption},
		{"a buffer", unix.SYS_SETSOCKOPT, [6]uint64{5, unix.SOL_SOCKET, unix.SO_RCVBUF}, retAllow},
		{"a port for many", unix.SYS_SETSOCKOPT, [6]uint64{5, unix.SOL_SOCKET, unix.SO_REUSEPORT}, retAllow},
		{"a file in memory", unix.SYS_MEMFD_CREATE, [6]uint64{0x1000, unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING}, retAllow},
		{"a file in huge pages", unix.SYS_MEMFD_CREATE, [6]uint64{0x1000, unix.MFD_CLOEXEC | unix.MFD_HUGETLB}, retFlag},
		{"a file with all flags", unix.SYS_MEMFD_CREATE, [6]uint64{0x1000, 0xffffffff}, retFlag},
		{"sync", unix.SYS_SYNC, [6]uint64{}, retNothing},
		{"fsync", unix.SYS_FSYNC, [6]uint64{}, retAllow},
		{"old asynchronous I/O", unix.SYS_IO_SETUP, [6]uint64{}, retNoSys},
		{"one's own limit", unix.SYS_PRLIMIT64, [6]uint64{0, unix.RLIMIT_CPU, 0x7ffc00001000}, retAllow},
		{"reading another's limit", unix.SYS_PRLIMIT64, [6]uint64{1, unix.RLIMIT_CPU, 0, 0x7ffc00001000}, retAllow},
		{"another's limit", unix.SYS_PRLIMIT64, [6]uint64{1, unix.RLIMIT_CPU, 0x7ffc00001000}, retPerm},
		{"another's limit, at a round address", unix.SYS_PRLIMIT64, [6]uint64{1, unix.RLIMIT_CPU, 0x7f << 32}, retPerm},
		{"a pair", unix.SYS_SOCKETPAIR, [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM}, retAllow},
		{"a pair of another family", unix.SYS_SOCKETPAIR, [6]uint64{unix.AF_TIPC, unix.SOCK_STREAM}, retFamily},
		{"a terminal's size", unix.SYS_IOCTL, [6]uint64{0, unix.TIOCGWINSZ}, retAllow},
		{"pushing input", unix.SYS_IOCTL, [6]uint64{0, unix.TIOCSTI}, retPerm},
		{"pushing input behind a high word", unix.SYS_IOCTL, [6]uint64{0, high | unix.TIOCSTI}, retPerm},
		{"the default personality", unix.SYS_PERSONALITY, [6]uint64{0xffffffff}, retAllow},
		{"an odd personality", unix.SYS_PERSONALITY, [6]uint64{0x0400000}, retPerm},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := eval(t, program(), call{tt.nr, auditArch, tt.args}); got != tt.want {
				t.Errorf("got %#x, want %#x", got, tt.want)
			}
		})
	}
}

func TestFilterKillsForeignArchitecture(t *testing.T) {
	if got := eval(t, program(), call{nr: unix.SYS_READ, arch: unix.AUDIT_ARCH_I386}); got != retKill {
		t.Errorf("got %#x", got)
	}
}

// Every allowed call is allowed by the search, and no other.
func TestFilterAgreesWithList(t *testing.T) {
	want := map[uint32]bool{}
	for _, nr := range allowed() {
		want[nr] = true
	}
	special := map[uint32]bool{}
	for _, c := range conditions() {
		special[c.nr] = true
		if want[c.nr] {
			t.Errorf("call %d is in both lists", c.nr)
		}
	}
	prog := program()
	for nr := range uint32(lastKnown + 100) {
		if special[nr] {
			continue
		}
		action := eval(t, prog, call{nr: nr, arch: auditArch})
		if (action == retAllow) != want[nr] || (action == retNoSys) != (nr > lastKnown) {
			t.Errorf("call %d: %#x", nr, action)
		}
	}
	if len(prog) > 4096 {
		t.Errorf("%d instructions: the kernel's limit is 4096", len(prog))
	}
}
