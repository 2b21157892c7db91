package procstat

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Offsets in struct kinfo_proc, on every 64-bit FreeBSD since 8; the kernel keeps the
// layout for old programs.
const (
	kiSize   = 0
	kiPID    = 72
	kiParent = 76
	kiRSS    = 264 // pages
	kiTime   = 328 // microseconds
	kiStart  = 336
	kiState  = 388
	kiLeast  = kiState + 1
)

// Find returns one process, or ESRCH if it does not exist.
func Find(pid int) (Process, error) {
	b, err := unix.SysctlRaw("kern.proc.pid", pid)
	if err != nil {
		return Process{}, os.NewSyscallError("sysctl kern.proc.pid", err)
	}
	all, err := parse(b)
	if err == nil && len(all) != 1 {
		err = syscall.ESRCH
	}
	if err != nil {
		return Process{}, err
	}
	return all[0], nil
}

// Processes returns all visible processes.
func Processes() ([]Process, error) {
	b, err := unix.SysctlRaw("kern.proc.proc")
	if err != nil {
		return nil, os.NewSyscallError("sysctl kern.proc.proc", err)
	}
	return parse(b)
}

func parse(b []byte) ([]Process, error) {
	var out []Process
	for len(b) > 0 {
		if len(b) < kiLeast {
			return nil, fmt.Errorf("kinfo_proc of %d bytes", len(b))
		}
		n := int(binary.NativeEndian.Uint32(b[kiSize:]))
		if n < kiLeast || n > len(b) {
			return nil, fmt.Errorf("kinfo_proc with a size of %d bytes", n)
		}
		u32 := binary.NativeEndian.Uint32
		u64 := binary.NativeEndian.Uint64
		out = append(out, Process{
			PID: int(u32(b[kiPID:])), Parent: int(u32(b[kiParent:])),
			Start: u64(b[kiStart:])*1e6 + u64(b[kiStart+8:]), Zombie: b[kiState] == zombie,
			CPU:    time.Duration(u64(b[kiTime:])) * time.Microsecond,
			Memory: u64(b[kiRSS:]) * uint64(os.Getpagesize()),
		})
		b = b[n:]
	}
	return out, nil
}

// Environ returns the initial environment of a process, each variable ended by a NUL; nil
// if it may not be read.
func Environ(pid int) []byte {
	b, err := unix.SysctlRaw("kern.proc.env", pid)
	if err != nil {
		return nil
	}
	return b
}

// BootID returns an id of this boot of the kernel.
func BootID() (string, error) {
	if id, err := unix.Sysctl("kern.boot_id"); err == nil && id != "" { // FreeBSD 14
		return strings.TrimSpace(id), nil
	}
	return bootTime()
}

// bootTime returns the second of the boot. It changes when the clock is set: running
// processes are then taken for ended ones, which is the safe mistake.
func bootTime() (string, error) {
	tv, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return "", os.NewSyscallError("sysctl kern.boottime", err)
	}
	return strconv.FormatInt(tv.Sec, 10), nil
}
