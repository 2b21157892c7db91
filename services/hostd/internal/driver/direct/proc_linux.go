package direct

import (
	"cmp"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// limit bounds the shim, which starts nothing before it is asked to, and with it
// all that it starts.
func limit(pid int, s *driver.Spec) error {
	limits := map[int]uint64{unix.RLIMIT_NOFILE: uint64(cmp.Or(s.OpenFiles, driver.DefaultOpenFiles))}
	if s.DiskMiB > 0 {
		limits[unix.RLIMIT_FSIZE] = uint64(s.DiskMiB) << 20
	}
	for what, most := range limits {
		var old unix.Rlimit
		if err := unix.Prlimit(pid, what, nil, &old); err != nil {
			return os.NewSyscallError("prlimit", err)
		}
		most = min(most, old.Max)
		if err := unix.Prlimit(pid, what, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
			return os.NewSyscallError("prlimit", err)
		}
	}
	return nil
}

// environOf is the environment that a process was started with; nothing where it
// may not be read.
func environOf(pid int) []byte {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil
	}
	return env
}
