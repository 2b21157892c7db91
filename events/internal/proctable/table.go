package proctable

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/finished"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// Table is the catalog of processes in a view. The lock of the view guards it.
type Table struct {
	conn      *store.Conn
	retention time.Duration
	progress  *fold.Progress
	active    map[process.ID]*entry
	order     order                                // of active
	pids      map[sandbox.ID]map[uint32]process.ID // the active process that is the newest with that pid
	finished  *finished.Set                        // processes that ended
	totals    totals

	snapshots Snapshots  // nil: none
	leader    leader     // of the catalog
	last      *cut       // the state to store as a snapshot; nil: none yet
	saving    sync.Mutex // held while a snapshot is stored, and for the fields below
	saved     uint64     // stream sequence of the snapshot that was restored or stored last
	damaged   bool       // the stored snapshot could not be restored
}

// entry is an active process in the catalog. It does not change: another one replaces it.
type entry struct {
	process.Summary
	rev uint64
	at  int64 // listedAt
}

// New returns an empty table of a view. Sweep removes entries that are older than the retention.
// Snapshots may be nil.
func New(conn *store.Conn, p *fold.Progress, retention time.Duration, snapshots Snapshots) *Table {
	return &Table{
		conn: conn, progress: p, retention: retention, snapshots: snapshots, leader: conn,
		active:   make(map[process.ID]*entry),
		order:    newOrder(),
		pids:     make(map[sandbox.ID]map[uint32]process.ID),
		finished: finished.NewSet(finished.MaxSlots),
		totals:   newTotals(),
	}
}

// Apply adds what a message contains. The view is locked.
func (t *Table) Apply(m store.Message) error {
	if m.Subject == totalsSubject {
		if err := t.totals.apply(m); err != nil {
			return err
		}
		t.dropEntries(t.totals.dropped)
		return nil
	}
	s, err := codec.DecodeSummary(m.Data)
	if err != nil {
		return err
	}
	if t.replace(&s, m.Seq) {
		t.cut(&m)
	}
	return nil
}

// replace adds an entry, instead of the one that its process has. It reports whether the state may
// be stored as a snapshot: the process ended, and no chunk grows any more.
func (t *Table) replace(s *process.Summary, rev uint64) (whole bool) {
	was, _, had := t.get(s.ID)
	if had {
		t.totals.replace(&was, s, rev)
	} else {
		t.totals.replace(nil, s, rev)
	}
	if e := t.active[s.ID]; e != nil {
		t.drop(e)
	}
	if !s.Active() {
		t.unsetPID(s)
		return t.finished.Put(s, rev)
	}
	if had && !was.Active() {
		t.finished.Remove(s.ID)
	}
	e := &entry{Summary: *s, rev: rev, at: s.ListedAt()}
	t.active[s.ID] = e
	t.order.add(e)
	t.setPID(s)
	return false
}

// dropEntries drops the entries before a stream sequence, which a killed server may have
// restored.
func (t *Table) dropEntries(before uint64) {
	for _, e := range t.active {
		if e.rev >= before {
			continue
		}
		if counted(&e.Summary) {
			t.totals.running[e.Outcome()]--
		}
		t.drop(e)
	}
	t.finished.RemoveBefore(before)
}

// drop removes the entry of an active process.
func (t *Table) drop(e *entry) {
	delete(t.active, e.ID)
	t.order.remove(e)
	t.dropPID(e.ID.Sandbox(), e.PID, e.ID)
}

// dropPID removes what a pid is mapped to if it is the given process.
func (t *Table) dropPID(sbx sandbox.ID, pid uint32, id process.ID) {
	if pids := t.pids[sbx]; pids[pid] == id {
		if delete(pids, pid); len(pids) == 0 {
			delete(t.pids, sbx)
		}
	}
}

// setPID maps a process's pid to it, unless a younger process has had that pid since: the
// older one's entry may arrive later.
func (t *Table) setPID(s *process.Summary) {
	sbx := s.ID.Sandbox()
	if s.PID == 0 {
		return
	}
	if _, younger := t.finished.ByPID(sbx, s.PID, s.ListedAt()+1); younger {
		return
	}
	pids := t.pids[sbx]
	if pids == nil {
		pids = make(map[uint32]process.ID)
		t.pids[sbx] = pids
	}
	if had := t.active[pids[s.PID]]; had == nil || !s.Started.Before(had.Started) {
		pids[s.PID] = s.ID
	}
}

// unsetPID removes what the pid of a process that ended is mapped to, unless that is younger.
func (t *Table) unsetPID(s *process.Summary) {
	sbx := s.ID.Sandbox()
	if had := t.active[t.pids[sbx][s.PID]]; had != nil && !s.Started.Before(had.Started) {
		t.dropPID(sbx, s.PID, had.ID)
	}
}

// Get returns a process's entry in the catalog and its rev, for PutSummary.
func (t *Table) Get(id process.ID) (process.Summary, uint64, bool) {
	t.progress.Lock()
	defer t.progress.Unlock()
	return t.get(id)
}

// get is Get with the view locked.
func (t *Table) get(id process.ID) (process.Summary, uint64, bool) {
	if e := t.active[id]; e != nil {
		return e.Summary, e.rev, true
	}
	if it, ok := t.finished.Get(id); ok {
		return new(finished.Decoder).Summary(&it), it.Rev(), true
	}
	return process.Summary{}, 0, false
}

// Await waits until the view has a process's entry, and returns it; or until ctx ends.
func (t *Table) Await(ctx context.Context, id process.ID) (sum process.Summary, err error) {
	err = t.progress.Wait(ctx, func() (ok bool) {
		sum, _, ok = t.get(id)
		return ok
	})
	return sum, err
}

// ByPID returns the newest process of the sandbox with that pid.
func (t *Table) ByPID(sbx sandbox.ID, pid uint32) (process.Summary, bool) {
	t.progress.Lock()
	defer t.progress.Unlock()
	if e := t.active[t.pids[sbx][pid]]; e != nil {
		return e.Summary, true
	}
	if it, ok := t.finished.ByPID(sbx, pid, math.MinInt64); ok && pid != 0 {
		return new(finished.Decoder).Summary(&it), true
	}
	return process.Summary{}, false
}

// Forget drops processes that ended before a time. They also started before it: the view does
// not look at others. The view is locked.
func (t *Table) Forget(before time.Time) { t.finished.RemoveEnded(before) }

// Has reports whether a sandbox has processes. The view is locked.
func (t *Table) Has(sbx sandbox.ID) bool { return t.order.has(sbx) || t.finished.Has(sbx) }
