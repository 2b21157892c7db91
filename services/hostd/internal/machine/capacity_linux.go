package machine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// processBound returns the maximum number of processes and threads of this machine and of this
// program's cgroup; 0: unknown.
func processBound() uint64 {
	var least uint64
	files := []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max", "/sys/fs/cgroup/pids.max"}
	if own, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(own)) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				files = append(files, filepath.Join("/sys/fs/cgroup", path, "pids.max"))
			}
		}
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		if err == nil && n > 0 && (least == 0 || n < least) { // "max" is unlimited
			least = n
		}
	}
	return least
}
