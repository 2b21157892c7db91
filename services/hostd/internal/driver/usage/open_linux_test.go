package usage

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Deleted files count as long as a process has them open or mapped.
func TestDeletedFilesCount(t *testing.T) {
	const size = 1 << 20
	dir := t.TempDir()
	of := func() uint64 {
		t.Helper()
		bytes, _, err := new(Disk).Of(t.Context(), dir, 0, os.Getpid(), os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	before := of()
	f, err := os.Create(filepath.Join(dir, "f"))
	if err == nil {
		_, err = f.Write(make([]byte, size))
	}
	if err == nil {
		err = os.Remove(f.Name())
	}
	if err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	grew := func(when string, least, most uint64) {
		t.Helper()
		if n := of() - before; n < least || n > most {
			t.Errorf("%s: %d bytes, want %d to %d", when, n, least, most)
		}
	}
	grew("open and mapped", size, size*3/2)
	f.Close()
	if os.Geteuid() == 0 {
		grew("mapped", size, size*3/2)
	}
	if err := unix.Munmap(mapped); err != nil {
		t.Fatal(err)
	}
	grew("gone", 0, size/2)
}
