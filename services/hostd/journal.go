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
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

// journal is what a host must know after a restart and the log does not say:
// how far its commands are done, and by which driver each sandbox was made, of what.
type journal struct {
	db *bbolt.DB

	turn sync.Mutex // held while notes are synced; taken before mu
	mu   sync.Mutex
	wait []*note
}

// note is a change that somebody waits for.
type note struct {
	change func(sandboxes, trees *bbolt.Bucket) error
	done   bool // by turn, as is err
	err    error
}

const (
	bucketMeta      = "meta"
	bucketSandboxes = "sandboxes"
	bucketTrees     = "trees" // of sandboxes; a bucket of its own, of which older hosts know nothing
	keyCursor       = "cursor"
	keyDraining     = "draining"
	keyEpoch        = "epoch"

	journalFile   = "hostd.db"
	damagedSuffix = ".damaged"
	lockTimeout   = 5 * time.Second // the hostd before may still be ending
)

// openJournal opens the journal in dir. One that is damaged is put aside, and an empty one
// takes its place: commands are read again, and sandboxes found where they are.
func openJournal(dir string, log *slog.Logger) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	path := filepath.Join(dir, journalFile)
	db, err := openDB(path)
	if errors.Is(err, errDamaged) {
		log.Error("the journal begins anew", "err", err, "put aside as", path+damagedSuffix)
		if err := os.Rename(path, path+damagedSuffix); err != nil {
			return nil, err
		}
		db, err = openDB(path)
	}
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, kind.Newf(kind.Conflict, "hostd", "", "another hostd works in %s", dir)
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

// openDB opens the file of a journal and reads all of it, so that nothing is met later
// that cannot be read: errDamaged, where the fault is not the system's.
func openDB(path string) (db *bbolt.DB, err error) {
	defer func() {
		if r := recover(); r != nil { // so bbolt says what it did not expect; the file stays open
			db, err = nil, fmt.Errorf("%w: %v", errDamaged, r)
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // what is mapped may not be there
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

// cursor is the last command that need not be looked at again.
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

// epoch returns the newest epoch of this host that setEpoch stored; 0 if there is none.
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

// draining reports whether the host was told to take no new sandbox.
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

// made is how a sandbox was made.
type made struct {
	driver string
	place  sandbox.ID // the name of its place; empty: its own
	trees  treeIDs    // of the cache that it stands on; nil: it is not known which
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

// The separator is in no tree's name.
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

// The separator is in no driver's name.
const placeMark = "/"

func (m made) bytes() []byte {
	if m.place == "" {
		return []byte(m.driver)
	}
	return []byte(m.driver + placeMark + string(m.place))
}

func madeOf(b []byte) made {
	name, place, _ := strings.Cut(string(b), placeMark)
	return made{driver: name, place: sandbox.ID(place)}
}

// write makes a change of the sandboxes durable. What others want while one sync is
// under way the next one has in it: each create waits for one.
func (j *journal) write(change func(sandboxes, trees *bbolt.Bucket) error) error {
	n := &note{change: change}
	j.mu.Lock()
	j.wait = append(j.wait, n)
	j.mu.Unlock()

	j.turn.Lock()
	defer j.turn.Unlock()
	if n.done { // in somebody else's sync
		return n.err
	}
	j.mu.Lock()
	all := j.wait
	j.wait = nil
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

// setSandbox notes how a sandbox is made, before the driver is called.
func (j *journal) setSandbox(id sandbox.ID, m made) error {
	return j.write(func(b, trees *bbolt.Bucket) error {
		return errors.Join(b.Put([]byte(id), m.bytes()), m.trees.put(trees, id))
	})
}

// hand notes that a place which was nobody's is a sandbox's from now on.
func (j *journal) hand(id sandbox.ID, m made) error {
	return j.write(func(b, trees *bbolt.Bucket) error {
		return errors.Join(b.Delete([]byte(m.place)), b.Put([]byte(id), m.bytes()),
			trees.Delete([]byte(m.place)), m.trees.put(trees, id))
	})
}

func (j *journal) forgetSandbox(id sandbox.ID) error {
	return j.write(func(b, trees *bbolt.Bucket) error { return errors.Join(b.Delete([]byte(id)), trees.Delete([]byte(id))) })
}

// sandboxes are all that were noted and not forgotten, with how they were made.
func (j *journal) sandboxes() (map[sandbox.ID]made, error) {
	out := make(map[sandbox.ID]made)
	err := j.db.View(func(tx *bbolt.Tx) error {
		trees := tx.Bucket([]byte(bucketTrees))
		return tx.Bucket([]byte(bucketSandboxes)).ForEach(func(k, v []byte) error {
			m := madeOf(v)
			m.trees = treesIn(trees.Get(k))
			out[sandbox.ID(k)] = m
			return nil
		})
	})
	return out, err
}

// offered is what a life's drivers could do, and where that was seen.
type offered struct {
	Boot, Version string
	UID           int
	Asked         []string // Config.Drivers
	Drivers       []offeredDriver
}

type offeredDriver struct {
	Name string
	Caps driver.Caps
}

const keyOffered = "offered"

// setOffered notes what the drivers can do. It costs a sync if that is new.
func (j *journal) setOffered(o *offered) error {
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

// offered is what setOffered noted; the zero value: nothing.
func (j *journal) offered() (o offered, err error) {
	err = j.db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte(bucketMeta)).Get([]byte(keyOffered)); b != nil {
			return json.Unmarshal(b, &o)
		}
		return nil
	})
	return o, err
}
