package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/services/hostd/internal/fair"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

const (
	sigKill = 9
	sigTerm = 15

	maxEvents = 2048 // in one message
)

// catalogEntry is the catalog's entry of a process. The process's goroutine owns it.
type catalogEntry struct {
	p *proc

	sum   process.Summary
	rev   uint64 // of the catalog's entry
	final bool   // the catalog's entry has the end
}

// publish stores the shim's events with one message in flight; events that arrive meanwhile are
// batched into the next. It returns when the record has ended.
func (p *proc) publish(ctx context.Context) error {
	for {
		size, lost := p.inbox.queued()
		switch {
		case size > 0:
			finished, err := p.storeNext(ctx, size)
			if err != nil || finished {
				return err
			}
		case lost.Cause != "":
			return p.endLost(ctx, lost)
		default:
			select {
			case <-p.wake:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// queued returns the size of the next message in bytes, and the end of the process if nothing
// more will come.
func (in *inbox) queued() (size int, lost process.Exit) {
	in.p.mu.Lock()
	defer in.p.mu.Unlock()
	_, size = in.message()
	return size, in.p.lost
}

// message returns how many of the queued events fit in one message, and their cost; p.mu is held.
func (in *inbox) message() (n, size int) {
	for n < len(in.queue) && n < maxEvents {
		cost := link.Cost(&in.queue[n].event)
		if n > 0 && size+cost > record.MaxBatch {
			break
		}
		n, size = n+1, size+cost
	}
	return n, size
}

// next dequeues at most one message of events.
func (in *inbox) next() (batch []item, cost int) {
	in.p.mu.Lock()
	defer in.p.mu.Unlock()
	n, cost := in.message()
	batch = in.queue[:n:n]
	if in.queue = in.queue[n:]; len(in.queue) == 0 {
		in.queue = nil
	}
	return batch, cost
}

// storeNext stores queued events when the sandbox gets its turn; events that arrive before that
// are included. It reports whether the record has ended.
func (p *proc) storeNext(ctx context.Context, size int) (finished bool, err error) {
	pass, err := p.enter(ctx, size)
	if err != nil {
		return false, err
	}
	defer pass.Leave()
	batch, cost := p.inbox.next()
	pass.SetSize(cost)
	return p.storeItems(ctx, batch, cost)
}

// enter waits for the turn of p's sandbox.
func (p *proc) enter(ctx context.Context, size int) (*fair.Pass, error) {
	if p.ss == nil {
		return nil, nil
	}
	return p.ss.flow.Enter(ctx, size)
}

// storeItems stores a batch of events from the shim, acks it, and answers the commands that
// waited for it.
func (p *proc) storeItems(ctx context.Context, batch []item, cost int) (finished bool, err error) {
	evs := make([]process.Event, len(batch))
	for i := range batch {
		evs[i] = batch[i].event
	}
	last := evs[len(evs)-1]
	if err := p.useTail(ctx); err != nil {
		return false, err
	}
	if fresh := p.unstored(evs); len(fresh) > 0 {
		if err := p.store(ctx, fresh); err != nil {
			return false, err
		}
		p.assumed = false // the record was as assumed, or the writer has its tail now
	}
	p.replies.settled(last.Seq)
	for _, it := range batch {
		p.h.pool.Put(it.mem)
	}
	p.inbox.release(evs, cost)
	p.ss.ack(wire.Mark{Token: p.id.Token(), Seq: last.Seq}, cost)
	if err := p.h.cfg.Fault("acked"); err != nil {
		return false, err
	}
	_, finished = last.Body.(process.Finished)
	return finished, nil
}

// release takes stored events off the accounting.
func (in *inbox) release(evs []process.Event, cost int) {
	weight := 0
	for i := range evs {
		weight += link.Weight(&evs[i])
	}
	in.p.mu.Lock()
	defer in.p.mu.Unlock()
	in.track.Flight -= cost
	in.heldBytes -= weight
	in.p.ss.flow.AddPending(-weight)
}

// store records events, also in the catalog, and answers the commands that waited for them.
func (p *proc) store(ctx context.Context, evs []process.Event) error {
	record := p.entry.recordBoth
	if p.ending {
		record = p.entry.recordEnd
	}
	if err := record(ctx, evs); err != nil {
		return err
	}
	if err := p.h.cfg.Fault("stored"); err != nil {
		return err
	}
	p.replies.releaseCursor()
	p.replies.settled(evs[len(evs)-1].Seq)
	return nil
}

// recordBoth appends events to the record, and concurrently writes what they report into the
// catalog. Gateways show an event when they have both. With an error, either may be stored.
func (ce *catalogEntry) recordBoth(ctx context.Context, evs []process.Event) error {
	if ce.final || !ce.summarize(evs) {
		return ce.p.append(ctx, evs)
	}
	entered := make(chan error, 1)
	go func() { entered <- ce.enter(ctx) }()
	err := ce.p.h.cfg.Fault("appending")
	if err == nil {
		err = ce.p.append(ctx, evs)
	}
	return cmp.Or(err, <-entered) // <-entered is evaluated in any case
}

// recordEnd appends an end that only hostd reports, and then enters it in the catalog: a message
// that a previous run had in flight may be stored late with the real end, and an entry with an end
// is never replaced.
func (ce *catalogEntry) recordEnd(ctx context.Context, evs []process.Event) error {
	if err := ce.p.append(ctx, evs); err != nil || ce.final || !ce.summarize(evs) {
		return err
	}
	return ce.enter(ctx)
}

// enter writes the entry between two points at which tests interrupt the host.
func (ce *catalogEntry) enter(ctx context.Context) error {
	if err := ce.p.h.cfg.Fault("summarizing"); err != nil {
		return err
	}
	if err := ce.put(ctx); err != nil {
		return err
	}
	return ce.p.h.cfg.Fault("summarized")
}

// settled answers the commands that waited for an event that is now stored.
func (rs *replies) settled(seq process.Seq) {
	rs.p.mu.Lock()
	rs.p.stored = seq
	var due []answer
	for len(rs.answers) > 0 && rs.answers[0].after <= rs.p.stored {
		due = append(due, rs.answers[0])
		rs.answers = rs.answers[1:]
	}
	rs.p.mu.Unlock()
	for _, a := range due {
		rs.p.h.cfg.Commands.Answer(a.cmd, a.reply)
	}
}

// errLate reports that a message of a previous run of this host was stored late.
var errLate = errors.New("a message of a previous run was stored late")

// append stores events. Events of a previous run of this host that arrive late are the same
// events: the shim sends none twice. Events that hostd creates depend on them: append returns
// errLate then, and the writer has the new tail.
//
// Output that is not kept is sent to those attached, and what stands for it is stored.
func (p *proc) append(ctx context.Context, evs []process.Event) error {
	if !p.spec.Record.KeepsOutput() {
		p.w.PublishLive(evs)
		evs = process.WithoutOutput(evs)
	}
	for {
		err := p.w.Append(ctx, evs)
		if !kind.Is(err, kind.Fenced) {
			return err
		}
		tail, tipErr := p.w.Recover(ctx)
		if tipErr != nil {
			return err
		}
		if tail.Epoch > p.h.cfg.Epoch {
			p.h.cfg.Abort(err)
			return err
		}
		if tail.Host != p.ref.Host || tail.Epoch == p.h.cfg.Epoch || tail.Finished != nil {
			return err
		}
		if p.ending {
			return errLate
		}
		for len(evs) > 0 && evs[0].Seq <= tail.Last {
			evs = evs[1:]
		}
		if len(evs) == 0 {
			return nil
		}
	}
}

// summarize copies what the events report into the catalog's entry and reports whether it
// changed.
func (ce *catalogEntry) summarize(evs []process.Event) bool {
	changed := false
	for i := range evs {
		switch b := evs[i].Body.(type) {
		case process.Started:
			ce.sum.PID, ce.sum.Started = b.PID, evs[i].Time
		case process.Signaled:
			if ce.sum.Killed || b.Signal != sigKill && b.Signal != sigTerm {
				continue
			}
			ce.sum.Killed = true
		case process.Finished:
			exit := b.Exit
			ce.sum.Exit, ce.sum.Ended, ce.sum.Last = &exit, evs[i].Time, evs[i].Seq
		default:
			continue
		}
		changed = true
	}
	return changed
}

// putStart writes the entry of a running process, which read may have given its start.
func (ce *catalogEntry) putStart(ctx context.Context) error {
	if s, _, ok := ce.p.h.cfg.View.Process(ce.p.id); ok && !s.Started.IsZero() || ce.sum.Started.IsZero() {
		return nil
	}
	return ce.put(ctx)
}

// put writes the catalog's entry. An entry that a previous run wrote late is
// overwritten; an entry that has an end stands, so that each process is counted once.
func (ce *catalogEntry) put(ctx context.Context) error {
	if ce.final {
		return nil
	}
	ce.sum.Epoch = ce.p.h.cfg.Epoch
	for {
		rev, err := ce.p.h.cfg.Log.PutSummary(ctx, &ce.sum, ce.rev)
		if err == nil {
			ce.rev, ce.final = rev, !ce.sum.Active()
			return nil
		}
		if !kind.Is(err, kind.Conflict) {
			return err
		}
		now, rev, err := ce.p.h.cfg.Log.Summary(ctx, ce.p.ref)
		if kind.Is(err, kind.NotFound) { // it fell out of retention
			ce.rev = 0
			continue
		}
		if err != nil {
			return err
		}
		if now.Epoch > ce.p.h.cfg.Epoch || now.Exit != nil && now.Exit.Cause == process.CauseHostLost {
			return kind.New(kind.Fenced, "summarize", string(ce.p.id), "another writer ended the process")
		}
		if ce.rev = rev; !now.Active() { // an earlier run of this host stored the end
			ce.sum, ce.final = now, true
			return nil
		}
	}
}

// endLost ends the record of a process from which nothing more will come.
func (p *proc) endLost(ctx context.Context, as process.Exit) error {
	if err := p.verifyTail(ctx); err != nil {
		return err
	}
	return p.end(ctx, as)
}

// end ends the record of a process that is out of reach: with the end that the record has, or
// else with as.
func (p *proc) end(ctx context.Context, as process.Exit) error {
	p.ending = true
	for {
		if err := p.store(ctx, p.finalEvents(as)); !errors.Is(err, errLate) {
			return err
		}
	}
}

// finalEvents returns the events that end the record. The end that the catalog has, or else the
// record, stands. Where the catalog has one, events between the last one stored and that end
// were lost, which becomes a gap.
func (p *proc) finalEvents(as process.Exit) []process.Event {
	last, now := p.w.Last(), time.Now()
	if p.entry.sum.Exit != nil {
		return process.Ending(last, &p.entry.sum)
	}
	exit := p.w.Exited()
	var evs []process.Event
	if exit == nil {
		exit = &as
		evs = append(evs, process.Event{Seq: last + 1, Time: now, Body: process.Exited{Exit: *exit}})
	}
	return append(evs, process.Event{Seq: last + uint64(len(evs)) + 1, Time: now, Body: process.Finished{Exit: *exit}})
}
