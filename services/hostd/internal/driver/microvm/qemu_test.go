//go:build linux

package microvm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/drivertest"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// procOf returns the directory in /proc of the QEMU of a sandbox.
func procOf(t *testing.T, s driver.Spec) string {
	t.Helper()
	state, err := live.Load(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join("/proc", strconv.Itoa(state.PID))
}

// statusOf returns the fields of a process's status.
func statusOf(t *testing.T, proc string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		fields[key] = strings.Join(strings.Fields(value), " ")
	}
	return fields
}

// An attacker that takes over a QEMU has no privileges and finds no files.
func TestQEMUHasNoPrivileges(t *testing.T) {
	newDriver(t)
	d := cached(t, os.Getenv(cacheVariable)) // with the other tests' guest
	specs := []driver.Spec{guestSpec(t), guestSpec(t)}
	var procs []string
	for _, s := range specs {
		s.MemoryMiB = 0
		drivertest.Create(t, d, s)
		procs = append(procs, procOf(t, s))
	}
	t.Run("has a uid of its own", func(t *testing.T) { hasOwnUID(t, procs) })
	t.Run("has namespaces of its own", func(t *testing.T) { hasOwnNamespaces(t, procs) })
	t.Run("sees its own files, read-only", func(t *testing.T) { seesItsOwn(t, d, procs[0]) })
	t.Run("cannot change the memory that others start from", func(t *testing.T) { cannotChange(t, procs[0]) })
}

func hasOwnUID(t *testing.T, procs []string) {
	uids := map[string]bool{strconv.Itoa(os.Getuid()): os.Getuid() == 0}
	for _, proc := range procs {
		status := statusOf(t, proc)
		for key, want := range map[string]string{
			"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
			"CapBnd": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
		} {
			if status[key] != want {
				t.Errorf("%s is %s, want %s", key, status[key], want)
			}
		}
		uid, _, _ := strings.Cut(status["Uid"], " ")
		if status["Uid"] != strings.Join([]string{uid, uid, uid, uid}, " ") || uids[uid] {
			t.Errorf("uids are %s, others have %v", status["Uid"], uids)
		}
		uids[uid] = os.Getuid() == 0
		if os.Getuid() == 0 && status["Groups"] != "" {
			t.Errorf("groups are %s", status["Groups"])
		}
		if own, err := os.ReadFile("/proc/self/uid_map"); err != nil || !differs(t, string(own), proc, "uid_map") {
			t.Errorf("it shares hostd's uid map (%v)", err)
		}
	}
}

func differs(t *testing.T, own, proc, file string) bool {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(proc, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b) != own
}

func hasOwnNamespaces(t *testing.T, procs []string) {
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		seen := map[string]bool{}
		for _, proc := range append([]string{"/proc/self"}, procs...) {
			ns, err := os.Readlink(filepath.Join(proc, "ns", kind))
			if err != nil {
				t.Fatal(err)
			}
			if seen[ns] {
				t.Errorf("%s is shared", ns)
			}
			seen[ns] = true
		}
	}
}

func seesItsOwn(t *testing.T, d *Driver, proc string) {
	program, err := d.program()
	if err != nil {
		t.Fatal(err)
	}
	shown, err := d.views.of(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(proc, "root")
	files := 0
	err = filepath.WalkDir(root+"/", func(path string, e fs.DirEntry, err error) error {
		inside := strings.TrimPrefix(path, root)
		switch {
		case err != nil:
			return err
		case inside == "/proc":
			return fs.SkipDir
		case !e.IsDir():
			files++
			if !slices.ContainsFunc(shown, func(s string) bool { return s == inside || strings.HasPrefix(inside, s+"/") }) {
				t.Errorf("it can see %s", inside)
			}
		}
		return nil
	})
	if err != nil || files < 10 {
		t.Errorf("%d files, %v", files, err)
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "mountinfo"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		// 36 35 98:0 /root /mount/point options ...
		f := strings.Fields(line)
		options := strings.Split(f[5], ",")
		if f[4] != "/proc" && (!slices.Contains(options, "ro") || !slices.Contains(options, "nosuid")) {
			t.Errorf("mounted: %s", line)
		}
	}
}

// cannotChange: QEMU can open its memory file for writing, but not write to it.
func cannotChange(t *testing.T, proc string) {
	const guest = "/memfd:guest (deleted)"
	path := filepath.Join(proc, "fd", strconv.Itoa(ramFd))
	if to, err := os.Readlink(path); err != nil || to != guest {
		t.Fatalf("memory file: %s, %v", to, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("a write: %v", err)
	}
	if _, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, unix.EPERM) {
		t.Errorf("a shared mapping: %v", err)
	}
}

// Pages that a guest changes of the memory that others start from are not charged
// twice.
func TestGuestCanUseAllItsMemory(t *testing.T) {
	newDriver(t)
	d := cached(t, os.Getenv(cacheVariable))
	s := guestSpec(t)
	s.MemoryMiB = 640
	in := drivertest.Create(t, d, s)
	for i := range 5 { // each has its own time limit, for slow machines
		more := fmt.Sprintf("mount -o remount,size=520m /dev/shm && head -c 100m /dev/zero > /dev/shm/%d && echo alive", i)
		if got, err := drivertest.Sh(t.Context(), in, more); err != nil || got != "alive\n" {
			t.Fatalf("file %d: got %q, %v", i, got, err)
		}
	}
	stats, err := in.Stats(t.Context())
	t.Logf("%d MiB, %v", stats.MemoryBytes>>20, err)
}
