//go:build linux

package nsinit

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The filter allows calls that are known to be harmless (allowed) and a few
// with some arguments (conditions). Any other call that existed when the list was
// written gets EPERM; a newer one gets ENOSYS, so that a C library falls
// back to what it replaces. A call by another architecture's numbers kills.
//
// Not allowed, above all: mounts, namespaces, ptrace and its relatives, bpf,
// perf, userfaultfd, io_uring, keys, kernel modules, kexec, clocks, swap, quota,
// file handles, and sockets other than unix, route netlink, and TCP, UDP and
// ping by IPv4 and IPv6 (a vsock is not bound by network namespaces and reaches the
// machine's host; other protocols are rarely reviewed code that the kernel loads
// on request). Old asynchronous I/O gets ENOSYS: the machine has one limit for all of it,
// and one sandbox could use it up.

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
	retNothing = unix.SECCOMP_RET_ERRNO // it succeeds without effect
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

// condition is a call that is decided by its arguments. Its program starts with
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
		// Its flags are in memory, which a filter cannot read: fall back to clone.
		{unix.SYS_CLONE3, []unix.SockFilter{ret(retNoSys)}},
		{unix.SYS_PERSONALITY, oneOf(0, retPerm, allowIf(0), allowIf(0x0008), allowIf(0x20000), allowIf(0x20008), allowIf(0xffffffff))},
		// An upper-layer protocol, such as TLS in the kernel, is loaded by name. Socket filters
		// are compiled into memory that the whole machine shares (net.core.bpf_jit_limit): when it
		// is used up, no sandbox can start.
		{unix.SYS_SETSOCKOPT, oneOf(1, retAllow,
			choice{unix.SOL_TCP, oneOf(2, retAllow, refuse(unix.TCP_ULP, retOption))},
			choice{unix.SOL_SOCKET, oneOf(2, retAllow, refuse(unix.SO_ATTACH_FILTER, retOption),
				refuse(unix.SO_ATTACH_REUSEPORT_CBPF, retOption))})},
		// The machine's pool of huge pages is not counted as a sandbox's memory. Chromium tries with
		// all flags, and does without the file only if the error is the kernel's own.
		{unix.SYS_MEMFD_CREATE, without(1, unix.MFD_HUGETLB, retFlag)},
		{unix.SYS_IO_SETUP, []unix.SockFilter{ret(retNoSys)}},
		{unix.SYS_PRLIMIT64, ownLimits()},
		// It would wait for all pending writes to the host's disks, and make other processes
		// wait. What must be durable, a volume's file, is synced by itself.
		{unix.SYS_SYNC, []unix.SockFilter{ret(retNothing)}},
		// These two put characters into a terminal's input.
		{unix.SYS_IOCTL, oneOf(1, retAllow, refuse(unix.TIOCSTI, retPerm), refuse(unix.TIOCLINUX, retPerm))},
	}
}

// without allows an argument that has none of these flags.
func without(arg, flags, refusal uint32) []unix.SockFilter {
	return []unix.SockFilter{load(arg), {Code: opSet, K: flags, Jt: 0, Jf: 1}, ret(refusal), ret(retAllow)}
}

// inet decides about an internet socket by its type, without the flags, and its
// protocol. Types are limited, too, because each has a default protocol for 0.
func inet() []unix.SockFilter {
	const typeMask = 0xf
	protocol := oneOf(2, retProto, allowIf(0), allowIf(unix.IPPROTO_TCP), allowIf(unix.IPPROTO_UDP),
		allowIf(unix.IPPROTO_ICMP), allowIf(unix.IPPROTO_ICMPV6))
	return append([]unix.SockFilter{
		load(1), {Code: opAnd, K: typeMask},
		{Code: opEq, K: unix.SOCK_STREAM, Jt: 4},
		{Code: opEq, K: unix.SOCK_DGRAM, Jt: 3},
		{Code: opEq, K: unix.SOCK_RAW, Jf: 1},
		ret(retPerm), // the kernel's own error
		ret(retType),
	}, protocol...)
}

// ownLimits lets a process set its own limits, and read those of all. It must not set those
// of the first process, which has the same uid and would die; each thread has a number.
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

// oneOf checks the lower half of an argument, which is all that the kernel
// uses in these calls.
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

// program returns the whole filter.
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

// span is the action for the numbers from first up to the next span's.
type span struct{ first, action uint32 }

// spans returns the maximal spans of numbers with the same action.
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

// search finds a number's span by binary search: seven or eight steps instead of three
// hundred, where the kernel does not cache a filter's results.
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

// installFilter installs the filter for this thread and all that it executes.
func installFilter() error {
	prog := program()
	f := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&f)))
	if errno != 0 {
		return fmt.Errorf("seccomp, %d instructions: %w", len(prog), errno)
	}
	return nil
}
