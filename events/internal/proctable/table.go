package proctable

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/internal/codec"
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
	processes map[process.ID]*entry
	interner  interner // of values in processes
	order     order
	pids      map[sandbox.ID]map[uint32]process.ID // the newest process with that pid
	totals    totals
}

// entry is a process in the catalog. It does not change: another one replaces it.
type entry struct {
	process.Summary
	rev uint64
	at  int64 // listedAt
}

// New returns an empty table of a view. Sweep removes entries that are older than the retention.
func New(conn *store.Conn, p *fold.Progress, retention time.Duration) *Table {
	return &Table{
		conn: conn, progress: p, retention: retention,
		processes: make(map[process.ID]*entry),
		order:     newOrder(),
		pids:      make(map[sandbox.ID]map[uint32]process.ID),
		totals:    newTotals(),
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
	t.interner.summary(&s)
	e, old := &entry{Summary: s, rev: m.Seq, at: s.ListedAt()}, t.processes[s.ID]
	var was *process.Summary
	if old != nil {
		was = &old.Summary
	}
	t.totals.replace(was, &s, m.Seq)
	t.order.replace(old, e)
	t.setPID(&s)
	t.processes[s.ID] = e
	return nil
}

// dropEntries drops the entries before a stream sequence, which a killed server may have
// restored.
func (t *Table) dropEntries(before uint64) {
	for _, e := range t.processes {
		if e.rev >= before {
			continue
		}
		if e.Active() && counted(&e.Summary) {
			t.totals.running[e.Outcome()]--
		}
		t.drop(e)
	}
}

// drop removes an entry.
func (t *Table) drop(e *entry) {
	delete(t.processes, e.ID)
	t.order.remove(e)
	sbx := e.ID.Sandbox()
	if pids := t.pids[sbx]; pids[e.PID] == e.ID {
		if delete(pids, e.PID); len(pids) == 0 {
			delete(t.pids, sbx)
		}
	}
}

// setPID maps a process's pid to it, unless a younger process has had that pid since: the
// older one's entry may arrive later.
func (t *Table) setPID(s *process.Summary) {
	if s.PID == 0 {
		return
	}
	pids := t.pids[s.ID.Sandbox()]
	if pids == nil {
		pids = make(map[uint32]process.ID)
		t.pids[s.ID.Sandbox()] = pids
	}
	if had := t.processes[pids[s.PID]]; had == nil || !s.Started.Before(had.Started) {
		pids[s.PID] = s.ID
	}
}

// Get returns a process's entry in the catalog and its rev, for PutSummary.
func (t *Table) Get(id process.ID) (process.Summary, uint64, bool) {
	t.progress.Lock()
	defer t.progress.Unlock()
	if e := t.processes[id]; e != nil {
		return e.Summary, e.rev, true
	}
	return process.Summary{}, 0, false
}

// Await waits until the view has a process's entry, and returns it; or until ctx ends.
func (t *Table) Await(ctx context.Context, id process.ID) (sum process.Summary, err error) {
	err = t.progress.Wait(ctx, func() bool {
		e := t.processes[id]
		if e != nil {
			sum = e.Summary
		}
		return e != nil
	})
	return sum, err
}

// ByPID returns the newest process of the sandbox with that pid.
func (t *Table) ByPID(sbx sandbox.ID, pid uint32) (process.Summary, bool) {
	t.progress.Lock()
	defer t.progress.Unlock()
	if e := t.processes[t.pids[sbx][pid]]; e != nil {
		return e.Summary, true
	}
	return process.Summary{}, false
}

// Forget drops processes that ended before a time. They also started before it: the view does
// not look at others. The view is locked.
func (t *Table) Forget(before time.Time) {
	var old []*entry
	for tenant, ok := t.order.nextTenant(nil); ok; tenant, ok = t.order.nextTenant(&tenant) {
		t.order.ended.byTenant.Ascend(oldestOf(tenant, ""), func(e *entry) bool {
			if e.Tenant != tenant || e.at >= before.UnixNano() {
				return false
			}
			if e.Ended.Before(before) {
				old = append(old, e)
			}
			return true
		})
	}
	for _, e := range old {
		t.drop(e)
	}
}

// Has reports whether a sandbox has processes. The view is locked.
func (t *Table) Has(sbx sandbox.ID) bool { return t.order.has(sbx) }
