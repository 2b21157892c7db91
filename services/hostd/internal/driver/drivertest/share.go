//go:build linux

package drivertest

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sharedResources returns resources that the kernel limits for a user, or the machine, as a whole. Each
// function takes one more, and keeps it as long as its thread and its process run.
func sharedResources() map[string]func(i int) error {
	return map[string]func(int) error{
		"inotify instances": func(int) error { _, err := unix.InotifyInit1(unix.IN_CLOEXEC); return err },
		"waiting signals":   queueSignal,
		"timers": func(int) error {
			var id int32
			_, _, errno := unix.RawSyscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&id)))
			return errnoError(errno)
		},
		"message queues":   messageQueue,
		"asynchronous I/O": setUpIO,
	}
}

func errnoError(errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

// queueSignal sends this thread a signal that stays pending.
func queueSignal(int) error {
	const signal = 40
	set := unix.Sigset_t{Val: [16]uint64{1 << (signal - 1)}}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		return err
	}
	info := struct {
		signo, errno, code int32
		_                  [116]byte
	}{signo: signal, code: -1} // SI_QUEUE
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(unix.Getpid()), uintptr(unix.Gettid()), signal, uintptr(unsafe.Pointer(&info)), 0, 0)
	return errnoError(errno)
}

// setUpIO makes an I/O context, for a limited number of requests, since a kernel of
// its own has no limit.
func setUpIO(i int) error {
	const most, requests = 300, 1024
	if i == most {
		return unix.EAGAIN
	}
	var ring uintptr
	_, _, errno := unix.RawSyscall(unix.SYS_IO_SETUP, requests, uintptr(unsafe.Pointer(&ring)), 0)
	return errnoError(errno)
}

func messageQueue(i int) error {
	name := []byte(fmt.Sprintf("q%d-%d\x00", unix.Gettid(), i))
	attr := [8]int64{0, 10, 8192} // number of messages, and their size
	_, _, errno := unix.RawSyscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600, uintptr(unsafe.Pointer(&attr)), 0, 0)
	if errno != 0 {
		return errno
	}
	_, _, errno = unix.RawSyscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name[0])), 0, 0) // it exists as long as it is open
	return errnoError(errno)
}

// enough of a resource counts as no limit; a process may have twice as many files.
const enough = 30_000

// exhaust takes all that is left of a share, as uid or as this process's user, and
// keeps it.
func exhaust(what string, uid int) int {
	taken := make(chan int)
	go func() {
		runtime.LockOSThread()
		setUID(uid)
		take, n := sharedResources()[what], 0
		for n < enough && take(n) == nil {
			n++
		}
		taken <- n
		time.Sleep(time.Hour) // the thread's resources end with it
	}()
	return <-taken
}

// userLimits: an instance that takes all that its user may have leaves its neighbors, and the
// host, their share.
func (s *suite) userLimits(t *testing.T) {
	for what, take := range sharedResources() {
		t.Run(what, func(t *testing.T) {
			a, b := s.create(t, nil), s.create(t, nil)
			taken := func(b *instance, uid int) int {
				return send(t, b.Instance, request{Call: "use up", Args: []string{what}, UID: uid}).Code
			}
			root := taken(a, -1)
			if root == 0 {
				t.Skip("not supported here")
			}
			user := taken(a, 1000)
			if err := take(enough); err != nil {
				t.Errorf("nothing left for the host: %v", err)
			}
			if n := taken(b, -1); n < root/4 {
				t.Errorf("the neighbor gets %d, after %d and %d were taken", n, root, user)
			}
		})
	}
}
