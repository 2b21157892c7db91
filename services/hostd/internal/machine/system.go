package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Load returns the machine's load over a minute; 0 where it is unknown.
func Load() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	n, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return n
}

// Memory returns how many bytes the machine has and has available; 0 where they are unknown.
func Memory() (total, free uint64) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			continue
		}
		switch f[0] {
		case "MemTotal:":
			total = kib << 10
		case "MemAvailable:":
			free = kib << 10
		}
	}
	return total, free
}

// System identifies the host's own files by the system and the packages that are installed, as
// the package managers list them. It takes a millisecond for Debian's 700 KB, once per run.
func System() string { return systemOf("/") }

func systemOf(root string) string {
	sum := sha256.New()
	sum.Write([]byte(runtime.GOOS + " " + runtime.GOARCH))
	for _, name := range []string{
		"etc/os-release", "var/lib/dpkg/status", "lib/apk/db/installed", // Debian's and Alpine's
		"usr/lib/sysimage/rpm/rpmdb.sqlite", "var/lib/rpm/rpmdb.sqlite", "var/lib/rpm/Packages.db", "var/lib/rpm/Packages",
	} {
		if f, err := os.Open(filepath.Join(root, name)); err == nil {
			part := sha256.New()
			_, err = io.Copy(part, f)
			f.Close()
			if err == nil {
				sum.Write(part.Sum(nil))
			}
		}
	}
	if entries, err := os.ReadDir(filepath.Join(root, "var/lib/pacman/local")); err == nil { // a directory per package and version
		for _, e := range entries {
			io.WriteString(sum, e.Name()+"\n") //nolint:errcheck // a hash never fails
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// CPU identifies the CPU features that a running process depends on; empty where they are
// unknown.
func CPU() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(info), "\n\n")
	sum := sha256.New()
	for line := range strings.Lines(first) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "vendor_id", "cpu family", "flags", "CPU implementer", "CPU architecture", "Features":
			fmt.Fprintln(sum, strings.TrimSpace(value))
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

// CPUs returns the number of CPUs.
func CPUs() uint32 { return uint32(runtime.NumCPU()) }
