// Package spawntest holds up, for tests, whoever executes a program.
package spawntest

import (
	"os"
	"os/signal"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Lease has nobody open or execute a file until let is called, the test ends, or the kernel's
// time for it is over, which is 45 s. It is skipped where the file system has no leases.
func Lease(t testing.TB, path string) (let func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	let = sync.OnceFunc(func() { f.Close() }) //nolint:errcheck // nothing was written
	t.Cleanup(let)
	signal.Ignore(unix.SIGIO)
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skip("no leases: ", err)
	}
	return let
}
