//go:build linux

package vminit

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// replacing makes this test binary one that replaces itself.
const replacing = "MILLRACE_TEST_REPLACING"

// The new program gets its descriptors under numbers that the old program's runtime uses for
// its poller, and the old one does not crash.
func TestReplaceWhileTheRuntimePolls(t *testing.T) {
	if os.Getenv(replacing) != "" {
		t.Fatal(replaceWhilePolling())
	}
	for range 20 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), replacing+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "replaced\n" {
			t.Fatalf("got %.1000q, %v", out, err)
		}
	}
}

// replaceWhilePolling replaces this program by a shell while many goroutines wait for
// the poller and for the clock.
func replaceWhilePolling() error {
	for range 50 {
		go func() {
			for range time.Tick(time.Microsecond) {
			}
		}()
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		go func() {
			b := make([]byte, 1)
			for {
				w.Write(b)
				r.Read(b)
			}
		}()
	}
	shell, err := unix.Open("/bin/sh", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var files []dup
	for fd := 3; fd < 10; fd++ { // includes the numbers of the shell and of null itself
		files = append(files, dup{null, fd})
	}
	return replace(shell, []string{"sh", "-c", "echo replaced"}, nil, files)
}
