package hostd

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// Changes that arrive during a sync of the journal share the next one.
func TestJournalChangesShareASync(t *testing.T) {
	j, err := openJournal(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	before := j.synced(t)
	const count = 50
	j.syncMu.Lock() // as during a sync
	var writes errgroup.Group
	for i := range count {
		writes.Go(func() error { return j.setSandbox(sandbox.ID(strconv.Itoa(i)), created{driver: "direct"}) })
	}
	until(t, "waiting", count, func() int {
		j.mu.Lock()
		defer j.mu.Unlock()
		return len(j.queue)
	})
	j.syncMu.Unlock()
	if err := writes.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := j.synced(t) - before; n != 1 {
		t.Errorf("%d syncs, want one for all", n)
	}
	if left, err := j.sandboxes(); len(left) != count || err != nil {
		t.Errorf("%d of %d sandboxes are stored, %v", len(left), count, err)
	}
}

// synced returns how many changes the journal's file has had.
func (j *journal) synced(t *testing.T) (n int) {
	t.Helper()
	if err := j.db.View(func(tx *bbolt.Tx) error { n = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestJournalSurvivesReopening(t *testing.T) {
	dir := t.TempDir()
	j, err := openJournal(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if rev, err := j.cursor(); rev != 0 || err != nil {
		t.Errorf("a new cursor: %d, %v", rev, err)
	}
	if err := j.setCursor(1 << 40); err != nil {
		t.Fatal(err)
	}
	for id, driver := range map[sandbox.ID]string{"a": "direct", "b": "namespace", "c": "direct"} {
		if err := j.setSandbox(id, created{driver: driver}); err != nil {
			t.Fatal(err)
		}
	}
	of := map[sandbox.ID]treeIDs{"a": {"one", "two"}, "inst": {}, "moved": {"one"}}
	for id, trees := range of {
		if err := j.setSandbox(id, created{driver: "direct", trees: trees}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(j.assign("moved", created{"direct", "inst", of["moved"]}), j.forgetSandbox("c")); err != nil {
		t.Fatal(err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	if j, err = openJournal(dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	defer j.close() //nolint:errcheck // the end of the test
	rev, err := j.cursor()
	all, err2 := j.sandboxes()
	if rev != 1<<40 || err != nil || err2 != nil || len(all) != 3 || all["a"].driver != "direct" || all["b"].driver != "namespace" {
		t.Errorf("%d, %v, %v, %v", rev, err, all, err2)
	}
	if all["b"].trees != nil || !slices.Equal(all["a"].trees, of["a"]) || all["moved"].instance != "inst" || !slices.Equal(all["moved"].trees, of["moved"]) {
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
			path := filepath.Join(dir, journalFile)
			j, err := openJournal(dir, log)
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
			if err := j.close(); err != nil {
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
			if j, err = openJournal(dir, log); err != nil {
				t.Fatal(err)
			}
			defer j.close() //nolint:errcheck // the end of the test
			all, err := j.sandboxes()
			if err != nil || len(all) != 0 || j.setCursor(5) != nil {
				t.Errorf("the new journal has %d sandboxes, %v", len(all), err)
			}
			if aside, err := os.ReadFile(path + damagedSuffix); err != nil || !bytes.Equal(aside, whole) {
				t.Errorf("the renamed journal has %d bytes, %v", len(aside), err)
			}
		})
	}
}

// Clients receive the reason of a failed create, but no internals.
func TestFailureMessages(t *testing.T) {
	for want, err := range map[string]error{
		"the sandbox ended by itself":            nil,
		"the disk of the sandbox's host is full": kind.Wrap(kind.Unavailable, "create sandbox", "s", &os.PathError{Op: "mkdir", Path: "/secret", Err: syscall.ENOSPC}),
		"internal":                               errors.New("a secret"),
	} {
		if got := failureMessage(err); got != want {
			t.Errorf("failureMessage(%v) = %q, want %q", err, got, want)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, cfg := range []Config{{}, {Name: "h", DataDir: "d"}} {
		if err := setDefaults(&cfg); !kind.Is(err, kind.Invalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
