//go:build linux

package microvm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/drivertest"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// booting makes this test binary a hostd that boots a guest with the cache that the variable
// names, and that is going to be killed.
const booting = "MILLRACE_TEST_BOOTING"

// cached returns a driver with this cache, or skips the test if it does not work here.
func cached(t *testing.T, cache string) *Driver {
	t.Helper()
	d := shared(t)
	d.cfg.Cache, d.images.dir = cache, cache
	return d
}

func guestSpec(t *testing.T) driver.Spec {
	t.Helper()
	s := driver.Spec{ID: sandbox.NewID(), MemoryMiB: 256}
	drivertest.Shim(&s)
	s.Dir = filepath.Join(t.TempDir(), string(s.ID))
	if err := os.Mkdir(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return s
}

// kept returns the guests in a cache.
func kept(t *testing.T, cache string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(cache, waitingPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// What a guest has in its memory is not visible to guests made from the same one, even
// when they are made at the same time.
func TestGuestsMadeFromOneShareNoChanges(t *testing.T) {
	cache := t.TempDir()
	d := cached(t, cache)
	first := drivertest.Create(t, d, guestSpec(t))
	dirs := kept(t, cache)
	if len(dirs) != 1 {
		t.Fatalf("waiting guests: %v", dirs)
	}
	before, err := os.ReadFile(filepath.Join(dirs[0], ramFile))
	if err != nil {
		t.Fatal(err)
	}
	const word = "canary-in-the-memory"
	if _, err := drivertest.Sh(t.Context(), first, "i=0; while [ $i -lt 1000 ]; do echo "+word+"; i=$((i+1)); done > /dev/shm/words"); err != nil {
		t.Fatal(err)
	}
	second := drivertest.Create(t, d, guestSpec(t))
	for in, want := range map[driver.Instance]string{first: "1000\n", second: "0\n"} {
		if got, err := drivertest.Sh(t.Context(), in, "cat /dev/shm/* 2>/dev/null | grep -c "+word); err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	if after, err := os.ReadFile(filepath.Join(dirs[0], ramFile)); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the shared memory has changed (%v)", err)
	}
	if again := kept(t, cache); !slices.Equal(again, dirs) {
		t.Errorf("waiting guests %v, want %v", again, dirs)
	}
}

// A guest that boots dies with its hostd, and the next create removes what was
// left.
func TestHostdKilledWhileAGuestBoots(t *testing.T) {
	if cache := os.Getenv(booting); cache != "" {
		drivertest.Create(t, cached(t, cache), guestSpec(t))
		return
	}
	cache := t.TempDir()
	d := cached(t, cache)
	hostd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	hostd.Env = append(os.Environ(), booting+"="+cache, "TMPDIR="+t.TempDir()) // it cannot remove this itself
	if err := hostd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "a guest to boot", func() bool { return len(runningIn(t, cache)) > 0 })
	hostd.Process.Kill()
	hostd.Wait()
	await(t, "the guest to end", func() bool { return len(runningIn(t, cache)) == 0 })
	drivertest.Create(t, d, guestSpec(t))
	if dirs := kept(t, cache); len(dirs) != 1 || strings.HasSuffix(dirs[0], unfinished) {
		t.Errorf("waiting guests: %v", dirs)
	}
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); !is(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out after a minute waiting for %s", what)
		}
	}
}

// runningIn returns the QEMUs that have a file below dir open.
func runningIn(t *testing.T, dir string) []int {
	t.Helper()
	all, err := live.Processes()
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for pid := range all {
		proc := filepath.Join("/proc", strconv.Itoa(pid))
		if comm, err := os.ReadFile(filepath.Join(proc, "comm")); err != nil || !strings.HasPrefix(string(comm), "qemu") {
			continue
		}
		files, err := os.ReadDir(filepath.Join(proc, "fd"))
		if err == nil && slices.ContainsFunc(files, func(f os.DirEntry) bool {
			path, err := os.Readlink(filepath.Join(proc, "fd", f.Name()))
			return err == nil && strings.HasPrefix(path, dir+"/")
		}) {
			found = append(found, pid)
		}
	}
	return found
}

// Guests that were unused for longest are removed, and incomplete ones.
func TestTidyKeepsRecentGuests(t *testing.T) {
	d := New(Config{Cache: t.TempDir()})
	used := time.Now()
	for i := range maxWaiting + 2 {
		dir := filepath.Join(d.images.dir, waitingPrefix+string(rune('a'+i)))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		used = used.Add(-time.Hour)
		if err := os.Chtimes(dir, used, used); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(d.images.dir, waitingPrefix+"a"+unfinished), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.tidy(); err != nil {
		t.Fatal(err)
	}
	var names strings.Builder
	for _, dir := range kept(t, d.images.dir) {
		names.WriteString(strings.TrimPrefix(filepath.Base(dir), waitingPrefix))
	}
	if want := "abcdefghijklmnop"[:maxWaiting-1]; names.String() != want {
		t.Errorf("kept %q, want %q", names.String(), want)
	}
}
