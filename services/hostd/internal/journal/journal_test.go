package journal

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/sandbox"
)

// Changes that arrive during a sync of the journal share the next one.
func TestJournalChangesShareASync(t *testing.T) {
	j, err := Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	before := j.synced(t)
	const count = 50
	j.syncMu.Lock() // as during a sync
	var writes errgroup.Group
	for i := range count {
		writes.Go(func() error { return j.SetSandbox(sandbox.ID(strconv.Itoa(i)), Created{Driver: "direct"}) })
	}
	waiting := func() int {
		j.mu.Lock()
		defer j.mu.Unlock()
		return len(j.queue)
	}
	for waiting() < count {
		runtime.Gosched()
	}
	j.syncMu.Unlock()
	if err := writes.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := j.synced(t) - before; n != 1 {
		t.Errorf("%d syncs, want one for all", n)
	}
	if left, err := j.Sandboxes(); len(left) != count || err != nil {
		t.Errorf("%d of %d sandboxes are stored, %v", len(left), count, err)
	}
}

// synced returns how many changes the journal's file has had.
func (j *Journal) synced(t *testing.T) (n int) {
	t.Helper()
	if err := j.db.View(func(tx *bbolt.Tx) error { n = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestJournalSurvivesReopening(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if rev, err := j.Cursor(); rev != 0 || err != nil {
		t.Errorf("a new cursor: %d, %v", rev, err)
	}
	if err := j.SetCursor(1 << 40); err != nil {
		t.Fatal(err)
	}
	for id, driver := range map[sandbox.ID]string{"a": "direct", "b": "namespace", "c": "direct"} {
		if err := j.SetSandbox(id, Created{Driver: driver}); err != nil {
			t.Fatal(err)
		}
	}
	of := map[sandbox.ID]Trees{"a": {"one", "two"}, "inst": {}, "moved": {"one"}}
	for id, trees := range of {
		if err := j.SetSandbox(id, Created{Driver: "direct", Trees: trees}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(j.Assign("moved", Created{"direct", "inst", of["moved"]}), j.Forget("c")); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if j, err = Open(dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	rev, err := j.Cursor()
	all, err2 := j.Sandboxes()
	if rev != 1<<40 || err != nil || err2 != nil || len(all) != 3 || all["a"].Driver != "direct" || all["b"].Driver != "namespace" {
		t.Errorf("%d, %v, %v, %v", rev, err, all, err2)
	}
	if all["b"].Trees != nil || !slices.Equal(all["a"].Trees, of["a"]) || all["moved"].Instance != "inst" || !slices.Equal(all["moved"].Trees, of["moved"]) {
		t.Errorf("trees: %v", all)
	}
}

// A damaged journal is renamed, whatever the damage, and the host starts.
func TestDamagedJournalIsReplaced(t *testing.T) {
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(i * 7 >> 3)
	}
	for name, damage := range map[string]func([]byte) []byte{
		"cut to a few bytes": func(b []byte) []byte { return b[:10] },
		"cut to its header":  func(b []byte) []byte { return b[:2*os.Getpagesize()] },
		"cut in half":        func(b []byte) []byte { return b[:len(b)/2] },
		"noise":              func(b []byte) []byte { return noise[:len(b)] },
		"a header and noise": func(b []byte) []byte { return append(b[:2*os.Getpagesize()], noise...) },
		"zeros":              func(b []byte) []byte { return make([]byte, len(b)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
			path := filepath.Join(dir, File)
			j, err := Open(dir, log)
			if err != nil {
				t.Fatal(err)
			}
			err = j.db.Update(func(tx *bbolt.Tx) error {
				for i := range 2000 { // more than a page or two
					err = errors.Join(err, tx.Bucket([]byte(bucketSandboxes)).Put([]byte{byte(i >> 8), byte(i)}, noise[:100]))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			whole = damage(whole)
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
			if j, err = Open(dir, log); err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			all, err := j.Sandboxes()
			if err != nil || len(all) != 0 || j.SetCursor(5) != nil {
				t.Errorf("the new journal has %d sandboxes, %v", len(all), err)
			}
			if aside, err := os.ReadFile(path + damagedSuffix); err != nil || !bytes.Equal(aside, whole) {
				t.Errorf("the renamed journal has %d bytes, %v", len(aside), err)
			}
		})
	}
}
