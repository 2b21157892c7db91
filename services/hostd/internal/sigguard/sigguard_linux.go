//go:build amd64 || arm64

package sigguard

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// faults are the fault signals that os/signal gets only if they were sent by kill or
// tgkill. kept are the signals that C libraries reserve: glibc's, and one more of musl.
func faults() []unix.Signal {
	return []unix.Signal{unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSYS}
}
func reserved() []unix.Signal { return []unix.Signal{32, 33, 34} }

// action is the kernel's sigaction.
type action struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// handlerFor returns the address of a handler that passes real faults to the handler at
// faults, and ignores signals that a process sent. It runs on the runtime's signal stack.
// There is only one: the first faults stays.
func handlerFor(faults uintptr) uintptr

// Install protects the program, permanently. os/signal may be used before and after. Its
// errors are the system's. It is meant for a program's main.
func Install() error {
	fault, err := current(unix.SIGSEGV)
	if err != nil {
		return err
	}
	fault.handler = handlerFor(fault.handler)
	signals := faults()
	for _, sig := range reserved() {
		own, err := current(sig)
		if err != nil {
			return err
		}
		if own.handler == 0 { // without cgo the runtime handles one of them
			signals = append(signals, sig)
		}
	}
	for _, sig := range signals {
		if err := sigaction(sig, &fault, nil); err != nil {
			return err
		}
	}
	return nil
}

func current(sig unix.Signal) (a action, err error) {
	err = sigaction(sig, nil, &a)
	return a, err
}

// sigaction calls rt_sigaction(2) directly; C libraries reject their reserved signals.
func sigaction(sig unix.Signal, now, was *action) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(now)), uintptr(unsafe.Pointer(was)),
		unsafe.Sizeof(action{}.mask), 0, 0)
	if errno != 0 {
		return os.NewSyscallError("rt_sigaction", errno)
	}
	return nil
}
