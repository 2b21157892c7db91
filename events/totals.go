package events

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// totalsSubject is where the catalogue's stream keeps the totals of the processes whose
// entries it may have dropped. It is newer than each entry that they count, so that a view
// that has read it has read all of those that are left, too.
const totalsSubject = "proc.totals"

// maxSettled is how many processes that ended a view counts one by one before the totals
// are stored anew.
const maxSettled = 4096

// totals count each process that started, once: those that run by their entries, those
// that ended by the stored totals and by the entries after them.
type totals struct {
	running map[process.Outcome]uint64 // killed: a kill was asked for
	ended   map[process.Outcome]uint64 // of the stored totals, and of settled
	upTo    uint64                     // the stored totals have the entries up to this stream sequence
	rev     uint64                     // of the stored totals; 0: there are none
	settled []settlement               // of processes that ended since, by rev
}

// settlement is a process's entry with its end.
type settlement struct {
	rev uint64
	as  process.Outcome
}

func newTotals() totals {
	return totals{running: make(map[process.Outcome]uint64), ended: make(map[process.Outcome]uint64)}
}

// counted reports whether a process counts as a command that was started: it had a pid
// (C-041), and a client started it (AMB-31).
func counted(s *process.Summary) bool { return !s.Started.IsZero() && !s.Spec.Helper }

// replace counts s, the entry with stream sequence rev, in place of old; nil: it is new.
// An entry with an end is never replaced by another one.
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

// apply takes over stored totals.
func (t *totals) apply(m stored) error {
	var b pb.ProcessTotals
	if err := proto.Unmarshal(m.data, &b); err != nil {
		return err
	}
	t.upTo, t.rev = b.UpTo, m.seq
	t.ended = make(map[process.Outcome]uint64, len(b.Ended))
	for as, n := range b.Ended {
		t.ended[process.Outcome(as)] = n
	}
	for len(t.settled) > 0 && t.settled[0].rev <= t.upTo {
		t.settled = t.settled[1:]
	}
	if len(t.settled) == 0 {
		t.settled = nil // with the memory of those before
	}
	for _, s := range t.settled {
		t.ended[s.as]++
	}
	return nil
}

// encode returns totals of all that ended up to stream sequence upTo.
func (t *totals) encode(upTo uint64) ([]byte, error) {
	b := &pb.ProcessTotals{UpTo: upTo, Ended: make(map[string]uint64, len(t.ended))}
	for as, n := range t.ended {
		b.Ended[string(as)] = n
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(b)
}

// Counts returns how many commands were started, by outcome (OutcomeActive: those that
// run). The sum is the number started (C-040 to C-042). It never shrinks: what retention
// drops was added to the stored totals before.
func (v *View) Counts() map[process.Outcome]uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make(map[process.Outcome]uint64)
	for as, n := range v.totals.running {
		out[as] += n
	}
	for as, n := range v.totals.ended {
		out[as] += n
	}
	return out
}

// SweepCatalogue removes the entries that are older than the retention from the
// catalogue. Before that it adds those of processes that ended to the stored totals, and
// stores those of processes that run anew. Any number of callers may do so at the same time.
func (v *View) SweepCatalogue(ctx context.Context) error {
	if err := v.Sync(ctx); err != nil {
		return err
	}
	before := time.Now().Add(-v.l.retention)
	keep, err := v.l.firstSince(ctx, streamCatalogue, before)
	if err != nil {
		return err
	}
	keep, stale, err := v.checkpoint(ctx, keep)
	if err != nil {
		return err
	}
	for i := range stale {
		_, err := v.l.PutSummary(ctx, &stale[i].Summary, stale[i].rev)
		if err != nil && !kind.Is(err, kind.Conflict) { // Conflict: its host stored it anew
			return err
		}
	}
	s, err := v.l.js.Stream(ctx, streamCatalogue)
	if err == nil && s.CachedInfo().State.FirstSeq < keep {
		err = s.Purge(ctx, jetstream.WithPurgeSequence(keep))
	}
	return kind.Wrap(kind.Unavailable, "sweep", streamCatalogue, err)
}

// checkpoint stores the totals if entries before stream sequence keep are not in the
// stored ones, or if many are not. It returns before which stream sequence nothing needs to
// be kept, and the entries before keep of processes that run. Conflict if another caller
// stored totals.
func (v *View) checkpoint(ctx context.Context, keep uint64) (drop uint64, stale []entry, err error) {
	v.mu.Lock()
	t := &v.totals
	upTo, rev := v.applied[streamCatalogue], t.rev
	due := len(t.settled) > maxSettled || len(t.settled) > 0 && t.settled[0].rev < keep
	data, err := t.encode(upTo)
	for _, e := range v.processes {
		if e.Active() && e.rev < keep {
			stale = append(stale, *e)
		}
	}
	v.mu.Unlock()
	if err != nil {
		return 0, nil, err
	}
	if due {
		if rev, err = v.l.put(ctx, streamCatalogue, totalsSubject, rev, data); err != nil {
			return 0, nil, err
		}
		keep = min(keep, upTo+1)
	}
	if rev > 0 {
		keep = min(keep, rev) // the totals themselves
	}
	return keep, stale, nil
}

// firstSince returns the stream sequence of the first message at or after a moment; past
// the last one if there is none.
func (l *Log) firstSince(ctx context.Context, stream string, at time.Time) (uint64, error) {
	got, err := l.directGet(ctx, stream, getRequest{Next: ">", StartTime: &at, Batch: 1})
	if err != nil {
		return 0, err
	}
	if len(got) > 0 {
		return got[0].seq, nil
	}
	last, err := l.lastSeq(ctx, stream)
	return last, err // the last message stays: others read it to see how far there is to read
}
