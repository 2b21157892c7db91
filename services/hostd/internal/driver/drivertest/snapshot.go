//go:build linux

package drivertest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// written is a script that leaves files of all kinds in $HOME, describe one that
// describes them; both run as the shim does.
const (
	written = `cd $HOME && mkdir -p d/deep && echo one > d/file && ln d/file d/same && ln -s file d/link && mkfifo pipe &&
		touch d/shut && chmod 000 d/shut && chmod 4751 d/file && truncate -s 60M sparse && touch -d @1000000000 d/deep && echo written`
	describe = `cd $HOME && cat d/file d/link && stat -c '%n %a %s %F' d/file d/same d/shut sparse pipe &&
		stat -c '%n %a %F %Y' d/deep && [ d/file -ef d/same ] && echo same`
)

// cannotKeep checks that a driver without snapshots returns Unimplemented, and reports
// whether that is the case.
func cannotKeep(t *testing.T, b *instance, caps driver.Caps) bool {
	t.Helper()
	if caps.Files {
		return false
	}
	if err := b.Snapshot(t.Context(), t.TempDir(), false); !kind.Is(err, kind.Unimplemented) {
		t.Errorf("without Caps.Files: %v, want Unimplemented", err)
	}
	return true
}

// snapshot takes a snapshot of the files.
func (b *instance) snapshot(t *testing.T) string {
	t.Helper()
	dir := snapshotDir(t)
	if err := b.Snapshot(t.Context(), dir, false); err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	return dir
}

// snapshotDir returns an empty directory for a snapshot. t.TempDir could not remove what an
// ordinary user's sandbox leaves there.
func snapshotDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "snapshot-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		filepath.WalkDir(dir, func(p string, d os.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				os.Chmod(p, 0o700)
			}
			return nil
		})
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fork makes an instance from a snapshot.
func (s *suite) fork(t *testing.T, from string) *instance {
	t.Helper()
	return s.create(t, func(sp *driver.Spec) { sp.From = from })
}

func (s *suite) testSnapshot(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		b := s.create(t, func(sp *driver.Spec) { sp.DiskMiB = 64 })
		if cannotKeep(t, b, caps) {
			return
		}
		if got := b.sh(t, written); got != "written" {
			t.Fatalf("got %q", got)
		}
		want := b.sh(t, describe)
		dir := b.snapshot(t)
		if got := b.sh(t, "cd $HOME && "+describe+" && rm -rf d && mkdir d && echo changed > d/file"); got != want {
			t.Errorf("after the snapshot: got\n%s\nwant\n%s", got, want)
		}
		first, second := s.fork(t, dir), s.fork(t, dir)
		for _, f := range []*instance{first, second} {
			if got := f.sh(t, describe); got != want {
				t.Errorf("an instance made from it: got\n%s\nwant\n%s", got, want)
			}
		}
		// From here on their files differ.
		first.sh(t, "cd $HOME && rm -rf d/same sparse && echo first > d/file && mkdir new")
		if got := second.sh(t, describe); got != want {
			t.Errorf("the other instance: got\n%s\nwant\n%s", got, want)
		}
		if got := second.sh(t, "cd $HOME && ls; hostname 2>/dev/null"); strings.Contains(got, "new") || strings.Contains(got, string(b.spec.ID)) {
			t.Errorf("got %q", got)
		}
		// A snapshot of an instance made from a snapshot.
		third := s.fork(t, first.snapshot(t))
		if got := third.sh(t, "cd $HOME && cat d/file && ls d; ls"); got != "first\ndeep\nfile\nlink\nshut\nd\nnew\npipe" {
			t.Errorf("in the second generation: %q", got)
		}
		if err := first.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.fork(t, dir).sh(t, describe); got != want {
			t.Errorf("the first snapshot: got\n%s\nwant\n%s", got, want)
		}
	}
}

// An instance is paused while it is copied: of two files that are always written
// one after the other, the second is never ahead.
func (s *suite) testSnapshotIsAMoment(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		b := s.create(t, nil)
		if cannotKeep(t, b, caps) {
			return
		}
		b.sh(t, `cd $HOME; mkdir a z; for i in $(seq 400); do echo $i > m$i; done
			setsid sh -c 'n=0; while :; do n=$((n+1)); echo $n > a/n.tmp; mv a/n.tmp a/n; echo $n > z/n.tmp; mv z/n.tmp z/n; done' >/dev/null 2>&1 &
			until [ -s z/n ]; do :; done`)
		for range 3 {
			got := strings.Fields(s.fork(t, b.snapshot(t)).sh(t, "cd $HOME; cat a/n z/n; ls | grep -c ^m"))
			if len(got) != 3 || got[2] != "400" || got[0] != got[1] && len(got[0]) < len(got[1]) {
				t.Fatalf("got %v", got)
			}
			if n, m := parseInt(t, got[0]), parseInt(t, got[1]); n != m && n != m+1 {
				t.Errorf("the first file has %d, the second %d", n, m)
			}
		}
		b.sh(t, `cd $HOME; was=$(cat a/n); until [ "$(cat a/n)" != "$was" ]; do :; done`)
	}
}

func parseInt(t *testing.T, s string) int {
	t.Helper()
	n := 0
	for _, c := range s {
		if c < '0' || c > '9' {
			t.Fatalf("%q is not a number", s)
		}
		n = 10*n + int(c-'0')
	}
	return n
}

func (s *suite) testSnapshotPaused(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		b := s.create(t, nil)
		if cannotKeep(t, b, caps) || cannotPause(t, b, caps) {
			return
		}
		b.sh(t, counter)
		if err := b.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		dir := b.snapshot(t)
		checkPaused(t, b.Instance)
		if got := s.fork(t, dir).sh(t, "cd $HOME && [ -e one ] && ls"); got != "one\ntwo" {
			t.Errorf("got %q", got)
		}
	}
}

func (s *suite) testSnapshotFails(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		b := s.create(t, nil)
		if cannotKeep(t, b, caps) {
			return
		}
		dir := snapshotDir(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.Snapshot(ctx, dir, false); !kind.Is(err, kind.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("remaining: %v, %v", left, err)
		}
		if got := b.sh(t, "echo runs"); got != "runs" {
			t.Errorf("after it: %q", got)
		}
		sp, _ := spec(t)
		sp.From = snapshotDir(t)
		if _, err := s.newDriver(t).Create(t.Context(), sp); !kind.Is(err, kind.NotFound) {
			t.Errorf("from an empty directory: %v, want NotFound", err)
		}
		checkClean(t, sp)
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.Snapshot(t.Context(), dir, false); !kind.Is(err, kind.Unavailable) {
			t.Errorf("after destroy: %v, want Unavailable", err)
		}
	}
}

func (s *suite) testForksAtOnce(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		b := s.create(t, nil)
		if cannotKeep(t, b, caps) {
			return
		}
		b.sh(t, "echo shared > $HOME/file")
		dir := b.snapshot(t)
		d := s.newDriver(t)
		var wg sync.WaitGroup
		for range 8 {
			sp, _ := spec(t)
			sp.From = dir
			wg.Go(func() {
				in, err := d.Create(t.Context(), sp)
				if err != nil {
					t.Errorf("create: %v", err)
					return
				}
				r, err := trySend(t.Context(), in, request{Args: []string{"sh", "-c", "cat $HOME/file && echo own > $HOME/file && cat $HOME/file"}, UID: -1})
				if err != nil || r.Out != "shared\nown\n" {
					t.Errorf("got %q, %v", r.Out, err)
				}
				if err := in.Destroy(context.Background()); err != nil {
					t.Errorf("destroy: %v", err)
				}
				checkClean(t, sp)
			})
		}
		wg.Wait()
	}
}
