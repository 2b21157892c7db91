// Package spawntest delays, for tests, the execution of a program.
package spawntest

import (
	"os"
	"os/signal"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Lease takes a lease on a file, so that opening or executing it blocks until release is
// called, the test ends, or the kernel breaks the lease after 45 s. It skips the test if
// the file system has no leases.
func Lease(t testing.TB, path string) (release func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() { f.Close() })
	t.Cleanup(release)
	signal.Ignore(unix.SIGIO)
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skip("no leases: ", err)
	}
	return release
}
