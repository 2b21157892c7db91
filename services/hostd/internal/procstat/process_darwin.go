package procstat

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Find returns one process, or an error if it does not exist.
func Find(pid int) (Process, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return Process{}, os.NewSyscallError("sysctl kern.proc.pid", err)
	}
	return process(k), nil
}

// Processes returns all visible processes.
func Processes() ([]Process, error) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, os.NewSyscallError("sysctl kern.proc.all", err)
	}
	out := make([]Process, len(all))
	for i := range all {
		out[i] = process(&all[i])
	}
	return out, nil
}

func process(k *unix.KinfoProc) Process {
	start := k.Proc.P_starttime
	return Process{
		PID: int(k.Proc.P_pid), Parent: int(k.Eproc.Ppid),
		Start: uint64(start.Sec)*1e6 + uint64(start.Usec), Zombie: k.Proc.P_stat == zombie,
	}
}

// Environ returns the initial environment of a process, each variable ended by a NUL, among
// other words; nil if it may not be read.
func Environ(pid int) []byte {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil {
		return nil
	}
	return b
}

// BootID returns an id of this boot of the kernel.
func BootID() (string, error) {
	if id, err := unix.Sysctl("kern.bootsessionuuid"); err == nil && id != "" {
		return id, nil
	}
	tv, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return "", os.NewSyscallError("sysctl kern.boottime", err)
	}
	return strconv.FormatInt(tv.Sec, 10), nil
}
