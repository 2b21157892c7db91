package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

// Journal has what a host needs after a restart and the log does not have: the position in its
// commands, and by which driver and from which trees each sandbox was created.
type Journal struct {
	db *bbolt.DB

	syncMu sync.Mutex // held while changes are synced; taken before mu
	mu     sync.Mutex
	queue  []*pending
}

// pending is a queued change of the journal.
type pending struct {
	change func(sandboxes *bbolt.Bucket) error
	done   bool // guarded by turn, as is err
	err    error
}

const (
	bucketMeta      = "meta"
	bucketSandboxes = "sandboxes"
	keyCursor       = "cursor"
	keyDraining     = "draining"
	keyEpoch        = "epoch"

	File          = "hostd.db" // name of the journal in its directory
	damagedSuffix = ".damaged"
	lockTimeout   = 5 * time.Second // the previous hostd may still be exiting
)

// Open opens the journal in dir. A damaged one is renamed, and an empty one takes its
// place: commands are read again, and sandboxes are found by their directories.
func Open(dir string, log *slog.Logger) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	path := filepath.Join(dir, File)
	db, err := openDB(path)
	if errors.Is(err, errDamaged) {
		log.Error("journal damaged, starting with an empty one", "err", err, "renamed to", path+damagedSuffix)
		if err := os.Rename(path, path+damagedSuffix); err != nil {
			return nil, err
		}
		db, err = openDB(path)
	}
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, kind.Newf(kind.Conflict, "hostd", "", "another hostd uses %s", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err1 := tx.CreateBucketIfNotExists([]byte(bucketMeta))
		_, err2 := tx.CreateBucketIfNotExists([]byte(bucketSandboxes))
		return errors.Join(err1, err2)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare journal: %w", err), db.Close())
	}
	return &Journal{db: db}, nil
}

var errDamaged = errors.New("the journal is damaged")

// openDB opens a journal's file and reads all of it, so that no unreadable page turns up later.
// It returns errDamaged unless the system call failed.
func openDB(path string) (db *bbolt.DB, err error) {
	defer func() {
		if r := recover(); r != nil { // bbolt panics on corrupt pages; the file stays open
			db, err = nil, fmt.Errorf("%w: %v", errDamaged, r)
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // reading a mapped page of a truncated file faults
	if db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout}); err == nil {
		err = db.View(readAll)
	}
	var errno syscall.Errno
	if err == nil || errors.As(err, &errno) || errors.Is(err, bolterrors.ErrTimeout) {
		return db, err
	}
	return nil, fmt.Errorf("%w: %w", errDamaged, err)
}

func readAll(tx *bbolt.Tx) error {
	var read []byte
	return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			read = append(append(read[:0], k...), v...)
			return nil
		})
	})
}

// Close closes the journal.
func (j *Journal) Close() error { return j.db.Close() }

// Cursor returns the last command that need not be read again.
func (j *Journal) Cursor() (rev uint64, err error) { return j.number(keyCursor) }

// SetCursor stores the cursor.
func (j *Journal) SetCursor(rev uint64) error { return j.setNumber(keyCursor, rev) }

// Epoch returns the newest epoch of this host that SetEpoch stored; 0 before the first.
func (j *Journal) Epoch() (epoch uint64, err error) { return j.number(keyEpoch) }

// SetEpoch stores the epoch of this run, so that the next one is newer even if the log
// loses the lease. It costs a sync.
func (j *Journal) SetEpoch(epoch uint64) error { return j.setNumber(keyEpoch, epoch) }

// Draining reports whether the host is draining.
func (j *Journal) Draining() (drain bool, err error) {
	n, err := j.number(keyDraining)
	return n != 0, err
}

// SetDraining stores whether the host is draining.
func (j *Journal) SetDraining(drain bool) error {
	var n uint64
	if drain {
		n = 1
	}
	return j.setNumber(keyDraining, n)
}

// number returns a number of the run; 0 if it is not stored.
func (j *Journal) number(key string) (n uint64, err error) {
	return n, j.db.View(func(tx *bbolt.Tx) error {
		n = parseNumber(tx.Bucket([]byte(bucketMeta)).Get([]byte(key)))
		return nil
	})
}

func (j *Journal) setNumber(key string, n uint64) error {
	return j.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketMeta)).Put([]byte(key), appendNumber(nil, n))
	})
}

// Created is how a sandbox was created.
type Created struct {
	Driver   string
	Instance sandbox.ID // the name of its instance; empty: the sandbox's own ID
	Trees    Trees      // the trees of the cache that it is based on; nil: unknown
}

// Trees are names of trees in the cache.
type Trees []template.ID

// TreesOf returns the names of trees; nil ones are left out.
func TreesOf(all ...*templates.Tree) Trees {
	out := Trees{}
	for _, t := range all {
		if t != nil {
			out = append(out, t.ID())
		}
	}
	return out
}

// write makes a change of the sandboxes durable. Changes that arrive during one sync share the
// next: every create waits for one.
func (j *Journal) write(change func(sandboxes *bbolt.Bucket) error) error {
	n := &pending{change: change}
	j.mu.Lock()
	j.queue = append(j.queue, n)
	j.mu.Unlock()

	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	if n.done { // by another caller's sync
		return n.err
	}
	j.mu.Lock()
	all := j.queue
	j.queue = nil
	j.mu.Unlock()
	err := j.db.Update(func(tx *bbolt.Tx) error {
		sandboxes := tx.Bucket([]byte(bucketSandboxes))
		for _, n := range all {
			if err := n.change(sandboxes); err != nil {
				return err
			}
		}
		return nil
	})
	for _, n := range all {
		n.done, n.err = true, err
	}
	return err
}

// SetSandbox stores how a sandbox is created, before the driver is called.
func (j *Journal) SetSandbox(id sandbox.ID, m Created) error {
	return j.write(func(b *bbolt.Bucket) error { return b.Put([]byte(id), m.append(nil)) })
}

// Assign stores that an instance without an owner is a sandbox's from now on.
func (j *Journal) Assign(id sandbox.ID, m Created) error {
	return j.write(func(b *bbolt.Bucket) error {
		return errors.Join(b.Delete([]byte(m.Instance)), b.Put([]byte(id), m.append(nil)))
	})
}

// Forget removes a sandbox, or an instance without an owner.
func (j *Journal) Forget(id sandbox.ID) error {
	return j.write(func(b *bbolt.Bucket) error { return b.Delete([]byte(id)) })
}

// Sandboxes returns all sandboxes that are stored, with how they were created. One whose entry is
// damaged is left out: like those of a lost journal, it is found by its directory.
func (j *Journal) Sandboxes() (map[sandbox.ID]Created, error) {
	out := make(map[sandbox.ID]Created)
	err := j.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketSandboxes)).ForEach(func(k, v []byte) error {
			if m, err := parseCreated(v); err == nil {
				out[sandbox.ID(k)] = m
			}
			return nil
		})
	})
	return out, err
}

const keyOffered = "offered"

// SetOffered stores what the drivers can do. It costs a sync if that changed.
func (j *Journal) SetOffered(o *drivers.Stored) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if old, err := j.Offered(); err == nil && reflect.DeepEqual(&old, o) {
		return nil
	}
	return j.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyOffered), b)
	})
}

// Offered returns what SetOffered stored; the zero value if nothing.
func (j *Journal) Offered() (o drivers.Stored, err error) {
	err = j.db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte(bucketMeta)).Get([]byte(keyOffered)); b != nil {
			return json.Unmarshal(b, &o)
		}
		return nil
	})
	return o, err
}
