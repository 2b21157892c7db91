//go:build linux

package microvm

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/drivertest"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/fifolink"
)

// shared returns a driver with the guests that the contract's tests have booted.
func shared(t *testing.T) *Driver {
	t.Helper()
	d, ok := newDriver(t).(*Driver)
	if !ok {
		t.Fatal("another driver")
	}
	if _, err := d.Probe(t.Context()); err != nil {
		t.Skip(err)
	}
	return d
}

// contractSpec returns guestSpec for one of those guests.
func contractSpec(t *testing.T) driver.Spec {
	t.Helper()
	s := guestSpec(t)
	s.MemoryMiB = 0
	return s
}

// instanceOf creates a guest and returns it as this package's type.
func instanceOf(t *testing.T, d *Driver, s driver.Spec) *instance {
	t.Helper()
	b, ok := drivertest.Create(t, d, s).(*instance)
	if !ok {
		t.Fatal("not an instance of this driver")
	}
	return b
}

// output runs a script in the guest and returns its output.
func output(t *testing.T, in driver.Instance, script string) string {
	t.Helper()
	got, err := drivertest.Sh(t.Context(), in, script)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(got)
}

// A hostd that dies while a guest sends its files leaves the guest unchanged, and the
// next run gets all of them.
func TestInterruptedSnapshotCanBeRepeated(t *testing.T) {
	d := shared(t)
	b := instanceOf(t, d, contractSpec(t))
	output(t, b, "cd /root 2>/dev/null; head -c 20000000 /dev/urandom > noise; (i=0; while :; do i=$((i+1)); echo $i > count; done) >/dev/null 2>&1 &")
	for range 3 {
		conn, err := live.Dial(t.Context(), b.Dir)
		if err != nil {
			t.Fatal(err)
		}
		guest, err := fifolink.DialAside(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := guest.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		output(t, b, "cd /root; was=$(cat count); until [ $(cat count) -gt $was ]; do :; done")
	}
	dir := filepath.Join(t.TempDir(), "snapshot")
	if err := errors.Join(os.Mkdir(dir, 0o700), b.Snapshot(t.Context(), dir, false)); err != nil {
		t.Fatal(err)
	}
	s := contractSpec(t)
	s.From = dir
	if got := output(t, instanceOf(t, d, s), "wc -c < /root/noise"); got != "20000000" {
		t.Errorf("the new guest has %q bytes", got)
	}
}

// Each snapshot that cannot be used is an error with its cause, and leaves no guest.
func TestUnusableSnapshotsAreRefused(t *testing.T) {
	d := shared(t)
	b := instanceOf(t, d, contractSpec(t))
	output(t, b, "head -c 20000000 /dev/urandom > /root/noise")
	dir := filepath.Join(t.TempDir(), "snapshot")
	if err := errors.Join(os.Mkdir(dir, 0o700), b.Snapshot(t.Context(), dir, false)); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadFile(filepath.Join(dir, writtenFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(s *driver.Spec)
		want   kind.Kind
	}{
		"a disk that is too small": {func(s *driver.Spec) { s.DiskMiB = 8 }, kind.Exhausted},
		"half of the files":        {func(s *driver.Spec) { rewrite(t, s, files[:len(files)/2]) }, kind.Exhausted},
		"no files":                 {func(s *driver.Spec) { rewrite(t, s, bytes.Repeat([]byte("x"), 1<<20)) }, kind.Exhausted},
		"another template":         {func(s *driver.Spec) { s.Root = t.TempDir() }, kind.Invalid},
		"another form":             {func(s *driver.Spec) { replaceForm(t, s, []byte(`{"format":2}`)) }, kind.Invalid},
	} {
		s := contractSpec(t)
		s.From = filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(s.From, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		c.change(&s)
		if _, err := d.Create(t.Context(), s); !kind.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if left, err := os.ReadDir(s.Dir); err != nil || len(left) > 0 {
			t.Errorf("%s: remaining %v, %v", name, left, err)
		}
	}
}

func rewrite(t *testing.T, s *driver.Spec, files []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.From, writtenFile), files, 0o600); err != nil {
		t.Fatal(err)
	}
}

func replaceForm(t *testing.T, s *driver.Spec, form []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.From, originFile), form, 0o600); err != nil {
		t.Fatal(err)
	}
}
