package regular_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/shim/internal/regular"
)

// TestReadDoesNotWaitForALease: the owner of a file can hold a lease on it, with which the kernel
// delays every open by up to 45 seconds.
func TestReadDoesNotWaitForALease(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("no leases here: %v", err)
	}
	if _, _, err := regular.Read(f.Name(), 10); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("got %v, want %v", err, unix.EAGAIN)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
		t.Fatal(err)
	}
	if _, _, err := regular.Read(f.Name(), 10); err != nil {
		t.Errorf("without the lease: %v", err)
	}
}
