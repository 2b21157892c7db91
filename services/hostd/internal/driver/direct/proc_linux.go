package direct

import (
	"cmp"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// limit limits the shim, which starts nothing before it gets a request, and with it
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
	return live.SetOOMScore(pid)
}

// environOf returns the environment that a process was started with; nil where it
// may not be read. If its first thread has ended, another one has it.
func environOf(pid int) []byte {
	for _, tid := range append([]int{pid}, live.Threads(pid)...) {
		if env, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/environ"); err == nil && len(env) > 0 {
			return env
		}
	}
	return nil
}

// parentOf returns a process's parent; 0 if it has ended.
func parentOf(pid int) int {
	_, parent, err := live.Parent(pid)
	if err != nil {
		return 0
	}
	return parent
}

// killIf kills a process if same still returns true once a pidfd holds it, so that its pid
// cannot be reused. It reports whether there was one to kill.
func killIf(pid int, same func(pid int) bool) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return same(pid) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}
