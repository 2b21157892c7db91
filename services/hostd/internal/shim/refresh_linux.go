package shim

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// aside is how far the clock may be from hostd's without being set.
const aside = 500 * time.Millisecond

// refresh gives the kernel of a machine that was restored from memory what others
// that were restored from the same do not have: hostd's time, and its random bytes.
// Where the kernel is not ours alone it refuses both, and needs neither.
func refresh(pid1 bool, now time.Time, seed []byte) {
	if !pid1 {
		return
	}
	if off := time.Until(now); off > aside || off < -aside {
		ts := unix.NsecToTimespec(now.UnixNano())
		unix.ClockSettime(unix.CLOCK_REALTIME, &ts) //nolint:errcheck // see above
	}
	f, err := os.OpenFile("/dev/random", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close() //nolint:errcheck // the kernel has it
	addEntropy(int(f.Fd()), seed)
}

// maxSeed is how many random bytes are taken.
const maxSeed = 64

// addEntropy mixes seed into the kernel's random numbers and has those that come
// next be made of it.
func addEntropy(fd int, seed []byte) {
	pool := struct {
		bits, size int32
		seed       [maxSeed]byte
	}{}
	n := copy(pool.seed[:], seed)
	pool.bits, pool.size = int32(8*n), int32(n)
	unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&pool))) //nolint:errcheck // see refresh
	unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.RNDRESEEDCRNG, 0)                              //nolint:errcheck // see refresh
}
