package hostd

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// machineWide are what the kernel bounds for the whole machine, below /proc/sys, and the
// bound that lets each sandbox have what it may: with those of a small machine eight
// sandboxes of 4096 processes, or three of 1024 terminals, would leave none to all
// others and to the host. Each but the last is bounded in a sandbox by a limit of its own,
// and all by memory.
var machineWide = [...]struct {
	file string
	want uint64
}{
	{"kernel/pid_max", 4 << 20}, // the most there can be
	{"kernel/threads-max", 4 << 20},
	{"kernel/pty/max", 1 << 20}, // likewise
	{"fs/file-max", 1 << 62},
	// Of the memory for compiled filters, those of all sandboxes among them, half of what
	// amd64 has, as newer kernels do; the rest is root's.
	{"net/core/bpf_jit_limit", 504 << 20},
}

// widen raises the bounds that are lower, where hostd may; root is /proc/sys.
func widen(root string, log *slog.Logger) {
	for _, c := range machineWide {
		path := filepath.Join(root, c.file)
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // another kernel
		}
		was, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
		if err != nil || was >= c.want {
			continue
		}
		if err := os.WriteFile(path, []byte(strconv.FormatUint(c.want, 10)), 0o644); err != nil { //nolint:gosec // it is the kernel's
			log.Warn("a few sandboxes may use up what all share", "setting", c.file, "is", was, "err", err)
			continue
		}
		log.Info("raised a bound of this machine", "setting", c.file, "was", was, "is", c.want)
	}
}
