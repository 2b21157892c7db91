package fresh

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// aside is how far the clock may be from hostd's without being set.
const aside = 500 * time.Millisecond

// Kernel sets its clock to now, and mixes seed, of which MaxSeed bytes count, into its
// random numbers. A kernel that is not ours alone refuses both, and needs neither.
func Kernel(now time.Time, seed []byte) {
	if off := time.Until(now); off > aside || off < -aside {
		set(now)
	}
	f, err := os.OpenFile("/dev/random", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close() //nolint:errcheck // the kernel has it
	addEntropy(int(f.Fd()), seed)
}

// Forward sets the clock of a kernel that stood still to now, if it is behind. It never goes
// back: what says now may have been on its way for a while.
func Forward(now time.Time) {
	if time.Until(now) > aside {
		set(now)
	}
}

func set(now time.Time) {
	ts := unix.NsecToTimespec(now.UnixNano())
	unix.ClockSettime(unix.CLOCK_REALTIME, &ts) //nolint:errcheck // a kernel that refuses
}

// MaxSeed is how many random bytes are taken.
const MaxSeed = 64

// addEntropy mixes seed into the kernel's random numbers and has those that come
// next be made of it.
func addEntropy(fd int, seed []byte) {
	pool := struct {
		bits, size int32
		seed       [MaxSeed]byte
	}{}
	n := copy(pool.seed[:], seed)
	pool.bits, pool.size = int32(8*n), int32(n)
	unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&pool))) //nolint:errcheck // a kernel that refuses
	unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.RNDRESEEDCRNG, 0)                              //nolint:errcheck // a kernel that refuses
}
