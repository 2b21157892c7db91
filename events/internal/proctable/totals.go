package proctable

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// totalsSubject is the catalog's subject for the totals of the processes whose entries
// may have been dropped. It is newer than each entry that they count, so that a view that
// has read it has also read all remaining entries.
const totalsSubject = streams.CatalogTotals

// maxSettled is how many ended processes a view counts one by one before the totals are
// stored again.
const maxSettled = 4096

// totals counts each started process once: running ones by their entries, ended ones by the
// stored totals and the entries after them.
type totals struct {
	running map[process.Outcome]uint64 // killed: a kill was requested
	ended   map[process.Outcome]uint64 // the stored totals plus settled
	upTo    uint64                     // the stored totals include entries up to this stream sequence
	rev     uint64                     // of the stored totals; 0: none stored
	dropped uint64                     // entries before this stream sequence were dropped
	settled []settlement               // processes that ended after upTo, by rev
}

// settlement is a process's entry that contains its end.
type settlement struct {
	rev uint64
	as  process.Outcome
}

func newTotals() totals {
	return totals{running: make(map[process.Outcome]uint64), ended: make(map[process.Outcome]uint64)}
}

// counted reports whether a process counts as a started command (C-041): it had a pid and
// was started by a client, not by the gateway itself.
func counted(s *process.Summary) bool { return !s.Started.IsZero() && !s.Spec.Helper }

// replace counts s, the entry with stream sequence rev, and uncounts old, the entry that it
// replaces; nil: none. An entry that contains an end is never replaced.
func (t *totals) replace(old, s *process.Summary, rev uint64) {
	if old != nil && counted(old) {
		if !old.Active() {
			return
		}
		t.running[old.Outcome()]--
	}
	switch {
	case !counted(s):
	case s.Active():
		t.running[s.Outcome()]++
	case rev > t.upTo:
		t.ended[s.Outcome()]++
		t.settled = append(t.settled, settlement{rev, s.Outcome()})
	}
}

// apply adopts stored totals.
func (t *totals) apply(m store.Message) error {
	var b pb.ProcessTotals
	if err := proto.Unmarshal(m.Data, &b); err != nil {
		return err
	}
	t.upTo, t.rev, t.dropped = b.UpTo, m.Seq, b.Dropped
	t.ended = make(map[process.Outcome]uint64, len(b.Ended))
	for as, n := range b.Ended {
		t.ended[process.Outcome(as)] = n
	}
	for len(t.settled) > 0 && t.settled[0].rev <= t.upTo {
		t.settled = t.settled[1:]
	}
	if len(t.settled) == 0 {
		t.settled = nil // frees their memory
	}
	for _, s := range t.settled {
		t.ended[s.as]++
	}
	return nil
}

// encode returns totals of all processes that ended up to stream sequence upTo. They must
// be stored before the entries before stream sequence dropped are removed.
func (t *totals) encode(upTo, dropped uint64) ([]byte, error) {
	b := &pb.ProcessTotals{UpTo: upTo, Dropped: dropped, Ended: make(map[string]uint64, len(t.ended))}
	for as, n := range t.ended {
		b.Ended[string(as)] = n
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(b)
}

// Counts returns how many commands were started, by outcome (OutcomeActive: running). The
// sum is the number started (C-040 to C-042). It never shrinks: entries that retention
// drops were added to the stored totals before.
func (t *Table) Counts() map[process.Outcome]uint64 {
	t.progress.Lock()
	defer t.progress.Unlock()
	out := make(map[process.Outcome]uint64)
	for as, n := range t.totals.running {
		out[as] += n
	}
	for as, n := range t.totals.ended {
		out[as] += n
	}
	return out
}

// Sweep removes catalog entries older than the retention. Before that it adds
// entries of ended processes to the stored totals and stores entries of running processes
// again. It may be called concurrently.
func (t *Table) Sweep(ctx context.Context) error {
	if err := t.progress.Sync(ctx, streams.Catalog); err != nil {
		return err
	}
	before := time.Now().Add(-t.retention)
	keep, err := t.conn.FirstSince(ctx, streams.Catalog, before)
	if err != nil {
		return err
	}
	for _, e := range t.staleEntries(keep) {
		_, err := Put(ctx, t.conn, &e.Summary, e.rev)
		if err != nil && !kind.Is(err, kind.Conflict) { // Conflict: its host stored it again
			return err
		}
	}
	if err := t.progress.Sync(ctx, streams.Catalog); err != nil {
		return err
	}
	if keep, err = t.checkpoint(ctx, keep); err != nil {
		return err
	}
	s, err := t.conn.Stream(ctx, streams.Catalog)
	if err == nil && s.FirstSeq() < keep {
		err = s.PurgeBefore(ctx, keep)
	}
	return kind.Wrap(kind.Unavailable, "sweep", streams.Catalog, err)
}

// staleEntries returns the entries of running processes before stream sequence keep.
func (t *Table) staleEntries(keep uint64) (stale []entry) {
	t.progress.Lock()
	defer t.progress.Unlock()
	t.order.bySandbox.Scan(func(e *entry) bool {
		if e.rev < keep {
			stale = append(stale, *e)
		}
		return true
	})
	return stale
}

// checkpoint stores the totals if the catalog has entries before stream sequence keep, or
// if many entries are missing in the stored ones. It returns the stream sequence before
// which entries can be dropped, or Conflict if another caller stored totals. It records the
// drop first, because a killed server may restore some dropped entries.
func (t *Table) checkpoint(ctx context.Context, keep uint64) (drop uint64, err error) {
	first, err := t.conn.FirstSince(ctx, streams.Catalog, time.Unix(0, 0))
	if err != nil {
		return 0, err
	}
	t.progress.Lock()
	sum := &t.totals
	upTo, rev := t.progress.LockedRev(streams.Catalog), sum.rev
	if keep = max(min(keep, upTo+1), sum.dropped); first >= keep && len(sum.settled) <= maxSettled {
		t.progress.Unlock()
		return 0, nil
	}
	if keep == sum.dropped && len(sum.settled) <= maxSettled { // a purge that was interrupted
		t.progress.Unlock()
		return keep, nil
	}
	data, err := sum.encode(upTo, keep)
	t.progress.Unlock()
	if err != nil {
		return 0, err
	}
	_, err = t.conn.Put(ctx, streams.Catalog, totalsSubject, rev, data)
	return keep, err
}
