//go:build linux

package namespace

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Clients choose the sizes of their disks: blank disks of only a few sizes are kept.
func TestFewBlankDisksAreKept(t *testing.T) {
	dir := t.TempDir()
	path := func(mib int) string { return filepath.Join(dir, fmt.Sprintf("disk-2-%d.ext4", mib)) }
	for mib := range 3 * maxBlanks {
		if err := os.WriteFile(path(mib), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		when := time.Unix(int64(1000-mib), 0)
		if err := os.Chtimes(path(mib), when, when); err != nil {
			t.Fatal(err)
		}
	}
	f, err := New(Config{Templates: dir}).blankDisk(t.Context(), 5*maxBlanks)
	if err != nil {
		t.Skip(err) // no mkfs.ext4
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Size != 5*maxBlanks<<20 {
		t.Errorf("a disk of %d bytes: %v", st.Size, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != maxBlanks {
		t.Errorf("%d blank disks, want %d: %v", len(left), maxBlanks, err)
	}
	for mib, want := range map[int]bool{5 * maxBlanks: true, 0: true, maxBlanks: false} {
		if _, err := os.Stat(path(mib)); (err == nil) != want {
			t.Errorf("disk of %d MiB: %v", mib, err)
		}
	}
}

func TestDiskIsNoLargerThanTheHosts(t *testing.T) {
	var host unix.Statfs_t
	dir := t.TempDir()
	if err := unix.Statfs(dir, &host); err != nil {
		t.Fatal(err)
	}
	all := uint32(host.Blocks * uint64(host.Bsize) >> 20)
	for requested, want := range map[uint32]uint32{1: minDiskMiB, 100: 100, 1 << 30: all} {
		if got, err := diskMiB(dir, requested); err != nil || got != want {
			t.Errorf("asked for %d: %d, %v; want %d", requested, got, err, want)
		}
	}
}
