package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrNoYield says that the kernel knows no groups that yield (Linux 5.15 does), or
// that there is none for the CPU.
var ErrNoYield = errors.New("the group cannot yield its CPU")

// idle is the file that says whether a group yields.
const idle = "cpu.idle"

// Yield has the group's processes run only where those of no other group of its parent
// want to, or again as its weight says. A quota holds either way.
func (g *Group) Yield(yes bool) error {
	for _, p := range g.paths() {
		value := "0"
		if yes {
			value = "1"
		}
		file, err := os.OpenFile(filepath.Join(p, idle), os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another controller's, or no longer there
		}
		if err != nil {
			return err
		}
		_, err = file.WriteString(value)
		if err = errors.Join(err, file.Close()); err != nil || yes {
			return err
		}
		// The kernel has forgotten it.
		w := weight(quota(p), p != g.v2)
		return os.WriteFile(filepath.Join(p, w.file), []byte(w.value), 0)
	}
	return ErrNoYield
}

// quota is the limit of the group at dir in thousandths of a CPU, 0 without one.
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
