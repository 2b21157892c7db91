//go:build linux

package nsinit

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The filter allows the calls that it knows to be harmless (allowed) and a few
// with some arguments (conditions). Another call that existed when the list was
// written gets EPERM; one that is newer gets ENOSYS, so that a C library falls
// back to what it replaces. A call by another architecture's numbers kills.
//
// Not allowed, above all: mounts, namespaces, ptrace and its relatives, bpf,
// perf, userfaultfd, io_uring, keys, kernel modules, kexec, clocks, swap, quota,
// handles of files, and sockets other than unix, route netlink, and TCP, UDP and
// ping by IPv4 and IPv6 (a vsock is not bound by network namespaces and reaches the
// machine's host; other protocols are code that few look at, and that the kernel loads
// for whoever asks). Old asynchronous I/O is as good as not there: what all of the
// machine may have of it together is bounded, and one sandbox could take it all.

const (
	dataNr   = 0
	dataArch = 4
	dataArgs = 16

	retAllow   = unix.SECCOMP_RET_ALLOW
	retKill    = unix.SECCOMP_RET_KILL_PROCESS
	retPerm    = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	retNoSys   = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	retFamily  = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
	retType    = unix.SECCOMP_RET_ERRNO | uint32(unix.ESOCKTNOSUPPORT)
	retProto   = unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)
	retNothing = unix.SECCOMP_RET_ERRNO // it succeeds
	retOption  = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOPROTOOPT)
	retFlag    = unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)

	opLoad = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	opEq   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	opGe   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	opSet  = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	opAnd  = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	opRet  = unix.BPF_RET | unix.BPF_K

	newNamespace = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
)

// condition is a call that is decided by its arguments. Its program begins with
// the call's number loaded and always returns.
type condition struct {
	nr   uint32
	prog []unix.SockFilter
}

func conditions() []condition {
	return []condition{
		{unix.SYS_SOCKET, oneOf(0, retFamily,
			allowIf(unix.AF_UNIX), choice{unix.AF_INET, inet()}, choice{unix.AF_INET6, inet()},
			choice{unix.AF_NETLINK, oneOf(2, retFamily, allowIf(unix.NETLINK_ROUTE))})},
		{unix.SYS_SOCKETPAIR, oneOf(0, retFamily, allowIf(unix.AF_UNIX))},
		{unix.SYS_CLONE, without(0, newNamespace, retPerm)},
		// Its flags are in memory, where a filter cannot look: fall back to clone.
		{unix.SYS_CLONE3, []unix.SockFilter{ret(retNoSys)}},
		{unix.SYS_PERSONALITY, oneOf(0, retPerm, allowIf(0), allowIf(0x0008), allowIf(0x20000), allowIf(0x20008), allowIf(0xffffffff))},
		// What takes over a connection, as TLS in the kernel does, is loaded by name. Filters of
		// sockets are compiled into memory of which all of the machine have so much together
		// (net.core.bpf_jit_limit): without any of it no place begins.
		{unix.SYS_SETSOCKOPT, oneOf(1, retAllow,
			choice{unix.SOL_TCP, oneOf(2, retAllow, refuse(unix.TCP_ULP, retOption))},
			choice{unix.SOL_SOCKET, oneOf(2, retAllow, refuse(unix.SO_ATTACH_FILTER, retOption),
				refuse(unix.SO_ATTACH_REUSEPORT_CBPF, retOption))})},
		// The machine's pool of huge pages is nobody's memory that is counted. Chromium asks with all
		// flags, and does without the file only if that is told as a kernel tells it.
		{unix.SYS_MEMFD_CREATE, without(1, unix.MFD_HUGETLB, retFlag)},
		{unix.SYS_IO_SETUP, []unix.SockFilter{ret(retNoSys)}},
		{unix.SYS_PRLIMIT64, ownLimits()},
		// It would wait for all that anybody has written to the host's disks, and have all
		// others wait. What is to be kept, a volume's file, is synced by itself.
		{unix.SYS_SYNC, []unix.SockFilter{ret(retNothing)}},
		// These two put characters into a terminal's input.
		{unix.SYS_IOCTL, oneOf(1, retAllow, refuse(unix.TIOCSTI, retPerm), refuse(unix.TIOCLINUX, retPerm))},
	}
}

// without lets an argument through that has none of these flags.
func without(arg, flags, refusal uint32) []unix.SockFilter {
	return []unix.SockFilter{load(arg), {Code: opSet, K: flags, Jt: 0, Jf: 1}, ret(refusal), ret(retAllow)}
}

// inet decides about a socket of the internet's by its type, without its flags, and its
// protocol. Types are bounded, too, because each has a protocol that 0 stands for.
func inet() []unix.SockFilter {
	const typeMask = 0xf
	protocol := oneOf(2, retProto, allowIf(0), allowIf(unix.IPPROTO_TCP), allowIf(unix.IPPROTO_UDP),
		allowIf(unix.IPPROTO_ICMP), allowIf(unix.IPPROTO_ICMPV6))
	return append([]unix.SockFilter{
		load(1), {Code: opAnd, K: typeMask},
		{Code: opEq, K: unix.SOCK_STREAM, Jt: 4},
		{Code: opEq, K: unix.SOCK_DGRAM, Jt: 3},
		{Code: opEq, K: unix.SOCK_RAW, Jf: 1},
		ret(retPerm), // as the kernel says it
		ret(retType),
	}, protocol...)
}

// ownLimits lets a process set its own limits, and read those of all. The first process's
// are like any other's of its uid, and would end it; it has many numbers, one a thread.
func ownLimits() []unix.SockFilter {
	const set, high = 2, 4 // the argument, and its upper half
	upper := load(set)
	upper.K += high
	return []unix.SockFilter{
		load(0), {Code: opEq, K: 0, Jt: 4},
		load(set), {Code: opEq, K: 0, Jf: 3},
		upper, {Code: opEq, K: 0, Jf: 1},
		ret(retAllow),
		ret(retPerm),
	}
}

type choice struct {
	value uint32
	prog  []unix.SockFilter
}

func allowIf(value uint32) choice { return choice{value, []unix.SockFilter{ret(retAllow)}} }

func refuse(value, action uint32) choice { return choice{value, []unix.SockFilter{ret(action)}} }

// oneOf looks at the lower half of an argument, which is all that the kernel
// looks at in these calls.
func oneOf(arg uint32, otherwise uint32, choices ...choice) []unix.SockFilter {
	prog := []unix.SockFilter{load(arg)}
	for _, c := range choices {
		prog = append(prog, unix.SockFilter{Code: opEq, K: c.value, Jf: uint8(len(c.prog))})
		prog = append(prog, c.prog...)
	}
	return append(prog, ret(otherwise))
}

func load(arg uint32) unix.SockFilter {
	return unix.SockFilter{Code: opLoad, K: dataArgs + 8*arg} // little-endian: the lower half is first
}

func ret(action uint32) unix.SockFilter { return unix.SockFilter{Code: opRet, K: action} }

// program is the whole filter.
func program() []unix.SockFilter {
	prog := []unix.SockFilter{
		{Code: opLoad, K: dataArch},
		{Code: opEq, K: auditArch, Jt: 1},
		ret(retKill),
		{Code: opLoad, K: dataNr},
	}
	for _, c := range conditions() {
		prog = append(prog, unix.SockFilter{Code: opEq, K: c.nr, Jf: uint8(len(c.prog))})
		prog = append(prog, c.prog...)
	}
	return append(prog, search(spans(allowed()))...)
}

// span says what becomes of the numbers from first up to the next span's.
type span struct{ first, action uint32 }

// spans are the maximal spans of numbers with the same fate.
func spans(nrs []uint32) []span {
	slices.Sort(nrs)
	nrs = slices.Compact(nrs)
	out := []span{{0, retPerm}}
	add := func(first, action uint32) {
		if last := &out[len(out)-1]; last.first == first {
			last.action = action
		} else if last.action != action {
			out = append(out, span{first, action})
		}
	}
	for _, n := range nrs {
		add(n, retAllow)
		add(n+1, retPerm)
	}
	add(lastKnown+1, retNoSys)
	return out
}

// search finds a number's span by halving: seven or eight steps instead of three
// hundred, where the kernel does not remember a filter's answers.
func search(rs []span) []unix.SockFilter {
	if len(rs) == 1 {
		return []unix.SockFilter{ret(rs[0].action)}
	}
	mid := len(rs) / 2
	left, right := search(rs[:mid]), search(rs[mid:])
	jump := []unix.SockFilter{{Code: opGe, K: rs[mid].first, Jt: uint8(len(left))}}
	if len(left) > 255 {
		jump = []unix.SockFilter{
			{Code: opGe, K: rs[mid].first, Jf: 1},
			{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(len(left))},
		}
	}
	return append(append(jump, left...), right...)
}

// installFilter puts the filter on this thread and all it executes.
func installFilter() error {
	prog := program()
	f := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&f)))
	if errno != 0 {
		return fmt.Errorf("seccomp, %d instructions: %w", len(prog), errno)
	}
	return nil
}
