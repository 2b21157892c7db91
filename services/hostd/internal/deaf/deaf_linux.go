//go:build amd64 || arm64

package deaf

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// faults are the signals of faults that os/signal is given only when they are sent by kill or
// tgkill, and kept those that C libraries keep for themselves: glibc's, and one more of musl.
func faults() []unix.Signal {
	return []unix.Signal{unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSYS}
}
func kept() []unix.Signal { return []unix.Signal{32, 33, 34} }

// action is what the kernel keeps of a signal.
type action struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// handlerFor gives the address of a handler that hands what the kernel found to faults,
// which is another's address, and does nothing about what a process sent. It runs on the
// stack that the runtime has for signals, and there is only one: the first faults stays.
func handlerFor(faults uintptr) uintptr

// Install makes the program deaf, for ever. os/signal may be used before and after. Its
// errors are the system's. It is for a program's main to call.
func Install() error {
	fault, err := current(unix.SIGSEGV)
	if err != nil {
		return err
	}
	fault.handler = handlerFor(fault.handler)
	signals := faults()
	for _, sig := range kept() {
		own, err := current(sig)
		if err != nil {
			return err
		}
		if own.handler == 0 { // without cgo the runtime itself has one of them
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

// sigaction is rt_sigaction(2), past C libraries, which refuse their own signals.
func sigaction(sig unix.Signal, now, was *action) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(now)), uintptr(unsafe.Pointer(was)),
		unsafe.Sizeof(action{}.mask), 0, 0)
	if errno != 0 {
		return os.NewSyscallError("rt_sigaction", errno)
	}
	return nil
}
