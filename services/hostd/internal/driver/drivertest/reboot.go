//go:build linux

package drivertest

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// booted prints the state of a kernel that is not in files: the id of its boot, the
// seconds since then, the contents of shared memory, and System V queues.
const booted = `cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo none; cut -d. -f1 /proc/uptime
	ls -A /dev/shm | wc -l; tail -n +2 /proc/sysvipc/msg 2>/dev/null | wc -l`

// testReboot checks that an instance made from the files of another is as after a reboot:
// nothing of the other one's kernel is left.
func (s *suite) testReboot(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		begun := time.Now()
		b := s.create(t, nil)
		if cannotKeep(t, b, caps) {
			return
		}
		b.sh(t, `echo kept > $HOME/file; echo gone > /dev/shm/file; ipcmk -Q >/dev/null 2>&1; true`)
		before := s.boot(t, b, time.Since(begun))
		if before[2] != "1" {
			t.Errorf("%s files are in shared memory, want 1", before[2])
		}
		begun = time.Now()
		f := s.fork(t, b.snapshot(t))
		after := s.boot(t, f, time.Since(begun))
		if after[0] == before[0] && after[0] != "none" {
			t.Errorf("the boot id is still %s", after[0])
		}
		if after[2] != "0" || after[3] != "0" {
			t.Errorf("%s files in shared memory and %s queues remain, want none", after[2], after[3])
		}
		if got := f.sh(t, "cat $HOME/file"); got != "kept" {
			t.Errorf("the file has %q", got)
		}
		if got := f.sh(t, booted); !strings.HasPrefix(got, after[0]+"\n") {
			t.Errorf("the boot id changes: %q, then %q", after[0], got)
		}
	}
}

// boot returns the output of booted, of an instance that is no older than age.
func (s *suite) boot(t *testing.T, b *instance, age time.Duration) []string {
	t.Helper()
	lines := strings.Split(b.sh(t, booted), "\n")
	if len(lines) != 4 {
		t.Fatalf("got %q", lines)
	}
	const slack = 30 * time.Second // of the request, and of the boot of a guest kept for such instances, on a loaded machine
	up, err := strconv.Atoi(lines[1])
	if limit := age + slack; err != nil || time.Duration(up)*time.Second > limit {
		t.Errorf("uptime %s s, %v; want at most %v", lines[1], err, limit)
	}
	return lines
}
