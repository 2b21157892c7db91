package proctable

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/events/internal/finished"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Snapshots stores snapshots of tables, in parts with a name. Nothing depends on them: a part
// that is missing or damaged makes a view read the catalog from its beginning.
type Snapshots interface {
	Get(ctx context.Context, name string) ([]byte, error) // NotFound if it is missing
	Put(ctx context.Context, name string, data []byte) error
	List(ctx context.Context) (map[string]time.Time, error) // when each was stored
	Remove(ctx context.Context, name string) error
}

// leader reads a message of a stream from its leader.
type leader interface {
	LeaderGet(ctx context.Context, stream string, req store.GetRequest) (store.Message, bool, error)
}

// head is the part of a snapshot that names all others. It contains no process: those that ended
// are in chunks, which never change and are named by their content, and those that were active
// are read from the catalog, where their environment is removed when they end.
type head struct {
	Version int
	Anchor  anchor   // the last message of the catalog that is in the snapshot
	Active  []uint64 // stream sequences of the entries of active processes
	Chunks  []string // names, in the order in which their processes ended
	Totals  storedTotals
}

// anchor identifies a message, and with it the stream and all before: another stream, or one that
// lost its end in a power failure, has another message there. It is the end of a process, which
// is never replaced.
type anchor struct {
	Seq     uint64
	Subject string
	Time    int64 // Unix nanoseconds
}

type storedTotals struct {
	Ended              map[process.Outcome]uint64
	UpTo, Rev, Dropped uint64
	SettledRevs        []uint64
	SettledAs          []process.Outcome
}

const (
	headName    = "catalog"
	headVersion = 1

	// othersLag is how far, in messages, the snapshot of another reaper may be behind before this
	// one replaces it.
	othersLag = 4 * finished.MaxSlots
	// unusedAge is how old a part is that no snapshot names and that is removed: another reaper may
	// have stored it for its next one.
	unusedAge = time.Hour
)

// cut is the state of a table at a message, to be stored as a snapshot.
type cut struct {
	head
	chunks []*finished.Chunk
}

// cut remembers the state of the table, whose last message is m. No chunk grows. The view is
// locked.
func (t *Table) cut(m *store.Message) {
	if m.Time.IsZero() {
		return
	}
	c := &cut{
		head: head{
			Version: headVersion, Anchor: anchor{Seq: m.Seq, Subject: m.Subject, Time: m.Time.UnixNano()},
			Totals: storedTotals{Ended: maps.Clone(t.totals.ended), UpTo: t.totals.upTo, Rev: t.totals.rev, Dropped: t.totals.dropped},
		},
		chunks: t.finished.Chunks(),
	}
	for _, e := range t.active {
		c.Active = append(c.Active, e.rev)
	}
	for _, s := range t.totals.settled {
		c.Totals.SettledRevs = append(c.Totals.SettledRevs, s.rev)
		c.Totals.SettledAs = append(c.Totals.SettledAs, s.as)
	}
	t.last = c
}

// SaveSnapshot stores a snapshot of the table, if there are enough new processes, and removes
// what only the previous one had. It removes one whose processes retention has dropped. Several
// views may call it: the newest snapshot counts.
func (t *Table) SaveSnapshot(ctx context.Context) error {
	t.saving.Lock()
	defer t.saving.Unlock()
	t.progress.Lock()
	c := t.last
	t.progress.Unlock()
	if t.snapshots == nil {
		return nil
	}
	was, ok, err := t.head(ctx)
	if err != nil {
		return err
	}
	old := c == nil || c.Anchor.Seq <= t.saved
	if ok && (old || !t.damaged && was.Anchor.Seq != t.saved && was.Anchor.Seq+othersLag >= c.Anchor.Seq) {
		return nil
	}
	stored, err := t.snapshots.List(ctx)
	if err != nil {
		return err
	}
	if old { // and retention has dropped the last message of the stored one
		return t.removeUnused(ctx, nil, stored)
	}
	for _, chunk := range c.chunks {
		name := chunk.Name()
		c.Chunks = append(c.Chunks, name)
		if _, ok := stored[name]; ok && !t.damaged {
			continue
		}
		if err := t.snapshots.Put(ctx, name, chunk.Encode()); err != nil {
			return t.uncut(c, err)
		}
	}
	data, err := json.Marshal(&c.head)
	if err == nil {
		err = t.snapshots.Put(ctx, headName, data)
	}
	if err != nil {
		return t.uncut(c, err)
	}
	t.saved, t.damaged = c.Anchor.Seq, false
	return t.removeUnused(ctx, append(c.Chunks, headName), stored)
}

// uncut forgets the names of a cut that was not stored.
func (t *Table) uncut(c *cut, err error) error {
	c.Chunks = nil
	return err
}

// removeUnused removes old parts other than the given ones.
func (t *Table) removeUnused(ctx context.Context, used []string, stored map[string]time.Time) error {
	for name, at := range stored {
		if slices.Contains(used, name) || time.Since(at) < unusedAge {
			continue
		}
		if err := t.snapshots.Remove(ctx, name); err != nil && !kind.Is(err, kind.NotFound) {
			return err
		}
	}
	return nil
}

// head reads the head of the stored snapshot. ok is false if there is none that the catalog
// continues.
func (t *Table) head(ctx context.Context) (h head, ok bool, err error) {
	data, err := t.snapshots.Get(ctx, headName)
	if kind.Is(err, kind.NotFound) {
		return head{}, false, nil
	}
	if err != nil {
		return head{}, false, err
	}
	if json.Unmarshal(data, &h) != nil || h.Version != headVersion || len(h.Totals.SettledRevs) != len(h.Totals.SettledAs) {
		return head{}, false, nil //nolint:nilerr // another format
	}
	m, found, err := t.leader.LeaderGet(ctx, streams.Catalog, store.GetRequest{Seq: h.Anchor.Seq})
	return h, found && (anchor{Seq: m.Seq, Subject: m.Subject, Time: m.Time.UnixNano()}) == h.Anchor, err
}
