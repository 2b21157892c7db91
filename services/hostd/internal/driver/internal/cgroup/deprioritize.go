package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrNotSupported reports that the kernel has no idle groups (Linux 5.15 does), or
// that there is no group for the CPU.
var ErrNotSupported = errors.New("the group cannot be deprioritized")

// idle is the file that deprioritizes a group.
const idle = "cpu.idle"

// SetDeprioritized makes the group's processes run only on CPUs that no other group of its
// parent needs, or restores the group's weight. A quota applies either way.
func (g *Group) SetDeprioritized(yes bool) error {
	for _, p := range g.paths() {
		value := "0"
		if yes {
			value = "1"
		}
		file, err := os.OpenFile(filepath.Join(p, idle), os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // of another controller, or no longer there
		}
		if err != nil {
			return err
		}
		_, err = file.WriteString(value)
		if err = errors.Join(err, file.Close()); err != nil || yes {
			return err
		}
		// The kernel has reset the weight.
		w := weight(quota(p), p != g.v2)
		return os.WriteFile(filepath.Join(p, w.file), []byte(w.value), 0)
	}
	return ErrNotSupported
}

// quota returns the limit of the group at dir in thousandths of a CPU, 0 without one.
func quota(dir string) uint32 {
	for _, name := range [...]string{"cpu.max", "cpu.cfs_quota_us"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		us, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ") // v2 has the period behind it
		n, err := strconv.ParseUint(us, 10, 32)
		if err != nil { // "max" or -1
			return 0
		}
		return uint32(n * 1000 / cpuPeriod)
	}
	return 0
}
