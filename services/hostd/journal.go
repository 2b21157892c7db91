package hostd

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"strings"
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

// journal has what a host needs after a restart and the log does not have: the position in its
// commands, and by which driver and from which trees each sandbox was created.
type journal struct {
	db *bbolt.DB

	syncMu sync.Mutex // held while changes are synced; taken before mu
	mu     sync.Mutex
	queue  []*journalChange
}

// journalChange is a queued change of the journal.
type journalChange struct {
	change func(sandboxes, trees *bbolt.Bucket) error
	done   bool // guarded by turn, as is err
	err    error
}

const (
	bucketMeta      = "meta"
	bucketSandboxes = "sandboxes"
	bucketTrees     = "trees" // of sandboxes; a bucket of its own, which older versions ignore
	keyCursor       = "cursor"
	keyDraining     = "draining"
	keyEpoch        = "epoch"

	journalFile   = "hostd.db"
	damagedSuffix = ".damaged"
	lockTimeout   = 5 * time.Second // the previous hostd may still be exiting
)

// openJournal opens the journal in dir. A damaged one is renamed, and an empty one takes its
// place: commands are read again, and sandboxes are found by their directories.
func openJournal(dir string, log *slog.Logger) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	path := filepath.Join(dir, journalFile)
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
		_, err3 := tx.CreateBucketIfNotExists([]byte(bucketTrees))
		return errors.Join(err1, err2, err3)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare journal: %w", err), db.Close())
	}
	return &journal{db: db}, nil
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

func (j *journal) close() error { return j.db.Close() }

// cursor returns the last command that need not be read again.
func (j *journal) cursor() (rev uint64, err error) {
	err = j.db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte(bucketMeta)).Get([]byte(keyCursor)); len(b) == 8 {
			rev = binary.BigEndian.Uint64(b)
		}
		return nil
	})
	return rev, err
}

func (j *journal) setCursor(rev uint64) error {
	return j.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyCursor), binary.BigEndian.AppendUint64(nil, rev))
	})
}

// epoch returns the newest epoch of this host that setEpoch stored; 0 before the first.
func (j *journal) epoch() (epoch uint64, err error) {
	return epoch, j.db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte(bucketMeta)).Get([]byte(keyEpoch)); len(b) == 8 {
			epoch = binary.BigEndian.Uint64(b)
		}
		return nil
	})
}

// setEpoch stores the epoch of this run, so that the next one is newer even if the log
// loses the lease. It costs a sync.
func (j *journal) setEpoch(epoch uint64) error {
	return j.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyEpoch), binary.BigEndian.AppendUint64(nil, epoch))
	})
}

// draining reports whether the host is draining.
func (j *journal) draining() (drain bool, err error) {
	err = j.db.View(func(tx *bbolt.Tx) error {
		drain = tx.Bucket([]byte(bucketMeta)).Get([]byte(keyDraining)) != nil
		return nil
	})
	return drain, err
}

func (j *journal) setDraining(drain bool) error {
	return j.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketMeta))
		if drain {
			return b.Put([]byte(keyDraining), []byte{1})
		}
		return b.Delete([]byte(keyDraining))
	})
}

// created is how a sandbox was created.
type created struct {
	driver   string
	instance sandbox.ID // the name of its instance; empty: the sandbox's own ID
	trees    treeIDs    // the trees of the cache that it is based on; nil: unknown
}

// treeIDs are names of trees in the cache.
type treeIDs []template.ID

func treesOf(all ...*templates.Tree) treeIDs {
	out := treeIDs{}
	for _, t := range all {
		if t != nil {
			out = append(out, t.ID())
		}
	}
	return out
}

// treeMark separates names of trees; no name contains it.
const treeMark = " "

func (ids treeIDs) put(trees *bbolt.Bucket, of sandbox.ID) error {
	if ids == nil {
		return trees.Delete([]byte(of))
	}
	var out []byte
	for _, id := range ids {
		out = append(append(out, id...), treeMark...)
	}
	return trees.Put([]byte(of), out)
}

func treesIn(b []byte) treeIDs {
	if b == nil {
		return nil
	}
	out := treeIDs{}
	for id := range strings.FieldsSeq(string(b)) {
		out = append(out, template.ID(id))
	}
	return out
}

// instanceMark separates driver and instance; no driver's name contains it.
const instanceMark = "/"

func (m created) bytes() []byte {
	if m.instance == "" {
		return []byte(m.driver)
	}
	return []byte(m.driver + instanceMark + string(m.instance))
}

func createdOf(b []byte) created {
	name, instance, _ := strings.Cut(string(b), instanceMark)
	return created{driver: name, instance: sandbox.ID(instance)}
}

// write makes a change of the sandboxes durable. Changes that arrive during one sync share the
// next: every create waits for one.
func (j *journal) write(change func(sandboxes, trees *bbolt.Bucket) error) error {
	n := &journalChange{change: change}
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
		sandboxes, trees := tx.Bucket([]byte(bucketSandboxes)), tx.Bucket([]byte(bucketTrees))
		for _, n := range all {
			if err := n.change(sandboxes, trees); err != nil {
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

// setSandbox stores how a sandbox is created, before the driver is called.
func (j *journal) setSandbox(id sandbox.ID, m created) error {
	return j.write(func(b, trees *bbolt.Bucket) error {
		return errors.Join(b.Put([]byte(id), m.bytes()), m.trees.put(trees, id))
	})
}

// assign stores that an instance without an owner is a sandbox's from now on.
func (j *journal) assign(id sandbox.ID, m created) error {
	return j.write(func(b, trees *bbolt.Bucket) error {
		return errors.Join(b.Delete([]byte(m.instance)), b.Put([]byte(id), m.bytes()),
			trees.Delete([]byte(m.instance)), m.trees.put(trees, id))
	})
}

func (j *journal) forgetSandbox(id sandbox.ID) error {
	return j.write(func(b, trees *bbolt.Bucket) error { return errors.Join(b.Delete([]byte(id)), trees.Delete([]byte(id))) })
}

// sandboxes returns all sandboxes that are stored, with how they were created.
func (j *journal) sandboxes() (map[sandbox.ID]created, error) {
	out := make(map[sandbox.ID]created)
	err := j.db.View(func(tx *bbolt.Tx) error {
		trees := tx.Bucket([]byte(bucketTrees))
		return tx.Bucket([]byte(bucketSandboxes)).ForEach(func(k, v []byte) error {
			m := createdOf(v)
			m.trees = treesIn(trees.Get(k))
			out[sandbox.ID(k)] = m
			return nil
		})
	})
	return out, err
}

const keyOffered = "offered"

// setOffered stores what the drivers can do. It costs a sync if that changed.
func (j *journal) setOffered(o *drivers.Stored) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if old, err := j.offered(); err == nil && reflect.DeepEqual(&old, o) {
		return nil
	}
	return j.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyOffered), b)
	})
}

// offered returns what setOffered stored; the zero value if nothing.
func (j *journal) offered() (o drivers.Stored, err error) {
	err = j.db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte(bucketMeta)).Get([]byte(keyOffered)); b != nil {
			return json.Unmarshal(b, &o)
		}
		return nil
	})
	return o, err
}
