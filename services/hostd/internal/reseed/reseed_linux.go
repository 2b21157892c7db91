package reseed

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxClockError is the clock error that is tolerated.
const maxClockError = 500 * time.Millisecond

// Kernel sets the clock to now and mixes seed, of which up to MaxSeed bytes are used, into
// the random number generator. A kernel shared with the host refuses both, and needs
// neither.
func Kernel(now time.Time, seed []byte) {
	if off := time.Until(now); off > maxClockError || off < -maxClockError {
		set(now)
	}
	f, err := os.OpenFile("/dev/random", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	addEntropy(int(f.Fd()), seed)
}

// AdvanceClock advances the clock of a paused kernel to now. It never sets it back, because now
// may have been in transit for a while.
func AdvanceClock(now time.Time) {
	if time.Until(now) > maxClockError {
		set(now)
	}
}

func set(now time.Time) {
	ts := unix.NsecToTimespec(now.UnixNano())
	unix.ClockSettime(unix.CLOCK_REALTIME, &ts) //nolint:errcheck // a kernel that refuses
}

// MaxSeed is the number of seed bytes that are used.
const MaxSeed = 64

// addEntropy mixes seed into the kernel's random number generator and reseeds it.
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
