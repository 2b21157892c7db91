package session

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// begin executes a start command: it claims the record, spawns the process and publishes until
// the record ends. A refused start is never claimed alone: one message has the claim and the
// refusal.
func (p *proc) begin(ctx context.Context) error {
	defer p.close()
	p.entry.sum = process.Summary{ID: p.id, Tenant: p.start.Tenant, Host: p.ref.Host, Epoch: p.h.cfg.Epoch, Spec: p.spec}
	first := process.Accepted{
		Spec: p.spec.Public(), Command: p.start.ID, SpecHash: p.hash, Tenant: p.start.Tenant,
	}
	if p.entry.hasRun() {
		return p.ended(ctx, p.retryStart(ctx))
	}
	if why := p.refusal(); why != nil {
		return p.ended(ctx, p.refuse(ctx, first, why))
	}
	err := p.claim(ctx, first)
	switch {
	case kind.Is(err, kind.Conflict):
		err = p.retryStart(ctx)
	case err == nil:
		if err = p.h.cfg.Fault("claimed"); err == nil {
			err = p.spawn(ctx)
		}
	}
	return p.ended(ctx, err)
}

// hasRun reports whether the catalog has more of the process than its claim. A run that lost
// its journal reads old commands again: the record of the process may have been dropped by then,
// and an empty record would let the process run a second time.
func (ce *catalogEntry) hasRun() bool {
	s, _, ok := ce.p.h.cfg.View.Process(ce.p.id)
	return ok && (!s.Started.IsZero() || !s.Active())
}

// refusal returns why the process cannot be started now; nil if it can.
func (p *proc) refusal() error {
	if err := cmp.Or(p.frame.err, p.start.Expired(time.Now())); err != nil {
		return err
	}
	if p.ss == nil {
		return kind.New(kind.NotFound, "start", string(p.id), "the sandbox does not run here")
	}
	if p.admitted {
		return p.ss.cfg.Usable()
	}
	err := p.ss.queue.admit(p.start, len(p.frame.bytes))
	p.admitted = err == nil
	return err
}

// refuse records the refusal of a start unless the record has begun.
func (p *proc) refuse(ctx context.Context, first process.Accepted, why error) error {
	pass, err := p.enter(ctx, 0)
	if err != nil {
		return err
	}
	now := time.Now()
	evs := append([]process.Event{{Seq: 1, Time: now, Body: first}}, refused(2, now, why)...)
	err = p.w.Append(ctx, evs)
	pass.Leave()
	if kind.Is(err, kind.Conflict) {
		return p.retryStart(ctx)
	}
	if err != nil {
		return err
	}
	// After the record: until it exists, another command may start the process.
	p.entry.summarize(evs)
	if _, err := p.h.cfg.Log.PutSummary(ctx, &p.entry.sum, 0); err != nil && !kind.Is(err, kind.Conflict) {
		return err
	}
	p.replies.settled(evs[len(evs)-1].Seq)
	return p.h.cfg.Fault("stored")
}

// refused returns the last events of a process that never ran.
func refused(seq process.Seq, at time.Time, why error) []process.Event {
	text := kind.Message(why)
	return []process.Event{
		{Seq: seq, Time: at, Body: process.Failed{Kind: uint32(kind.Of(why)), Message: text}},
		{Seq: seq + 1, Time: at, Body: process.Finished{Exit: process.Exit{Cause: process.CauseNotStarted, Message: text}}},
	}
}

// claim appends the record's first event, and concurrently enters the process in the catalog:
// from then on the reaper can end it if this host is lost before it runs. Conflict: the record
// has a first event.
func (p *proc) claim(ctx context.Context, first process.Accepted) error {
	pass, err := p.enter(ctx, 0)
	if err != nil {
		return err
	}
	defer pass.Leave()
	entered := make(chan struct{})
	go func() {
		defer close(entered)
		// An entry that exists, or cannot be written, is overwritten later.
		if rev, err := p.h.cfg.Log.PutSummary(ctx, &p.entry.sum, 0); err == nil {
			p.entry.rev = rev
		}
	}()
	err = p.w.Append(ctx, []process.Event{{Seq: 1, Time: time.Now(), Body: first}})
	<-entered
	return err
}

// resume continues with a process that the shim has from a previous run, until its record ends.
func (p *proc) resume(ctx context.Context) error {
	defer p.close()
	var err error
	if !p.assumeTail() {
		err = p.lookUp(ctx)
	}
	if err == nil {
		err = p.publish(ctx)
	}
	return p.ended(ctx, err)
}

// lookUp is recover with bounded concurrency per sandbox: the shim determines how many processes
// there are.
func (p *proc) lookUp(ctx context.Context) error {
	select {
	case p.ss.lookups <- struct{}{}:
		defer func() { <-p.ss.lookups }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return p.recover(ctx)
}

// ended handles the error with which the work on a process ended, and has the shim drop the
// process if its record does not accept its events.
func (p *proc) ended(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errFinished):
		err = nil
	case err == nil:
		return nil
	case kind.Is(err, kind.Fenced):
		if !p.unknown { // unknown processes are logged together
			p.h.cfg.Slog.Warn("record was ended by another writer", "process", p.id, "err", err)
		}
		err = nil
	}
	// Nothing more of it can be recorded: if it runs, it must not.
	if p.ss != nil {
		p.mu.Lock()
		heard := p.inbox.track != nil
		p.mu.Unlock()
		p.ss.forget(p.id.Token(), heard)
	}
	return err
}

// errFinished reports that the record has already ended.
var errFinished = errors.New("the record has its end")

// forget has the shim kill a process and drop its events. Only events of an attached process may
// be in flight; remembering other tokens, too, would let a shim that invents processes fill the
// host's memory.
func (ss *Session) forget(token string, heard bool) {
	if heard {
		ss.mu.Lock()
		ss.forgotten[token] = struct{}{}
		ss.mu.Unlock()
	}
	ss.send(func(dst []byte) []byte { return wire.AppendForget(dst, token) })
}

// spawn sends the shim the start of a process that was claimed.
func (p *proc) spawn(ctx context.Context) error {
	p.mu.Lock()
	p.stored = 1
	p.mu.Unlock()
	if why := p.refusal(); why != nil { // since the claim; or the claim is a previous run's
		return p.fail(ctx, why)
	}
	p.mu.Lock()
	p.inbox.track = link.NewTrack(p.spec.PTY != nil)
	p.mu.Unlock()
	p.ss.command(*p.start, p, p.frame.bytes)
	p.frame.bytes = nil
	p.ss.queue.start(p)
	if err := p.h.cfg.Fault("spawned"); err != nil {
		return err
	}
	return p.publish(ctx)
}

// fail records that a process never ran.
func (p *proc) fail(ctx context.Context, why error) error {
	return p.store(ctx, refused(p.w.Last()+1, time.Now(), why))
}

// retryStart handles a start whose record was claimed before, by this command or another one for
// the same process: in a previous run of the host, which may or may not have spawned it, or by a
// gateway that ended it.
func (p *proc) retryStart(ctx context.Context) error {
	if p.ss != nil {
		select {
		case <-p.ss.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.mu.Lock()
	known := p.known != nil
	p.mu.Unlock()
	if known {
		if err := p.recover(ctx); err != nil {
			return err
		}
		return p.publish(ctx)
	}
	tail, err := p.w.Recover(ctx)
	switch {
	case kind.Is(err, kind.NotFound): // it ran, and its record was dropped
		return errFinished
	case err != nil:
		return err
	case tail.Finished != nil:
		return p.entry.end(ctx, tail.Finished.Exit)
	case tail.Host != p.ref.Host || tail.Epoch >= p.h.cfg.Epoch:
		return kind.New(kind.Fenced, "start", string(p.id), "another host started it")
	case tail.Last > 1 || p.ss == nil || !p.ss.listed(): // it ran, or may have, and its shim is gone
		if err := p.entry.read(ctx); err != nil {
			return err
		}
		return p.end(ctx, process.Exit{Cause: process.CauseShimLost})
	}
	first, err := p.accepted(ctx)
	if err != nil {
		return err
	}
	if !bytes.Equal(first.SpecHash, p.hash) {
		return nil // the command that claimed it is handled separately
	}
	return p.spawn(ctx)
}

// end gives the catalog's entry the end that the record has.
func (ce *catalogEntry) end(ctx context.Context, exit process.Exit) error {
	if err := ce.read(ctx); err != nil || !ce.sum.Active() {
		return errors.Join(err, errFinished)
	}
	ce.sum.Exit, ce.sum.Ended, ce.sum.Last = &exit, time.Now(), ce.p.w.Last()
	return errors.Join(ce.put(ctx), errFinished)
}

// recover continues with a process that the shim has, from where its record ends.
func (p *proc) recover(ctx context.Context) error {
	tail, err := p.w.Recover(ctx)
	switch {
	case kind.Is(err, kind.NotFound):
		err = p.unrecorded(ctx)
	case err != nil:
	case tail.Finished != nil:
		return p.entry.end(ctx, tail.Finished.Exit)
	default:
		if err = p.entry.read(ctx); err == nil {
			err = p.entry.putStart(ctx)
		}
		if err == nil {
			err = p.repair(ctx, tail.Last)
		}
	}
	if err != nil {
		return err
	}
	last := p.w.Last()
	if p.continueFrom(last); last > 1 {
		p.replies.releaseCursor()
	}
	p.ss.queue.start(p)
	return nil
}

// unrecorded prepares to continue with a process that was silent for so long that its record fell
// out of retention. The catalog, which is kept fresh, has it.
func (p *proc) unrecorded(ctx context.Context) error {
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	sum, rev, err := p.h.cfg.Log.Summary(ctx, p.ref)
	if err != nil && !kind.Is(err, kind.NotFound) {
		return err
	}
	if err == nil && !sum.Active() {
		return p.restoreEnd(ctx, sum, rev)
	}
	if err != nil || known == nil {
		return kind.New(kind.Fenced, "recover", string(p.id), "the process has no record")
	}
	p.entry.sum, p.entry.rev, p.spec = sum, rev, sum.Spec
	p.w.ContinueAfter(known.First - 1)
	return nil
}

// restoreEnd stores the end of a process that ended, if its whole record was lost rather
// than dropped by retention: the shim may not have received the last ack, and so still
// have the process.
func (p *proc) restoreEnd(ctx context.Context, sum process.Summary, rev uint64) error {
	lost, err := p.h.cfg.Log.Lost(ctx, &sum)
	if err != nil {
		return err
	}
	if !lost {
		return kind.New(kind.Fenced, "recover", string(p.id), "the process has no record")
	}
	p.entry.sum, p.entry.rev, p.spec, p.entry.final = sum, rev, sum.Spec, true
	if err := p.end(ctx, *sum.Exit); err != nil {
		return err
	}
	return errFinished
}

// continueFrom accepts events from the shim from now on, after the given seq.
func (p *proc) continueFrom(last process.Seq) {
	p.ss.mu.Lock()
	defer p.ss.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inbox.track = &link.Track{PTY: p.spec.PTY != nil}
	p.inbox.track.Resume(last)
	p.stored = last
	if conn := p.ss.conn; conn != nil && p.known != nil && p.lost.Cause == "" {
		conn.Send(p.appendPosition)
	}
}

// appendPosition appends the seq after which the shim must continue, and the ack of what is
// stored.
func (p *proc) appendPosition(dst []byte) []byte {
	token := p.id.Token()
	dst = wire.AppendMark(dst, wire.TypeResume, wire.Mark{Token: token, Seq: p.inbox.track.Last})
	if p.stored >= p.known.First {
		dst = wire.AppendMark(dst, wire.TypeAck, wire.Mark{Token: token, Seq: p.stored})
	}
	return dst
}

// repair appends a gap where the log lost the end of a record after acking it, as a single server
// does on power loss: the missing events are stored nowhere. The size of the gap comes from the
// shim, which may be wrong: a gap beyond maxGap ends the record, and the process.
func (p *proc) repair(ctx context.Context, last process.Seq) error {
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	if known == nil || known.First <= last+1 {
		return nil
	}
	p.h.cfg.Slog.Error("the log lost events that it had stored", "process", p.id, "from", last+1, "to", known.First-1)
	if known.First-last > maxGap {
		return errors.Join(p.end(ctx, process.Exit{Cause: process.CauseShimLost}), errFinished)
	}
	var evs []process.Event
	if last == 1 { // the shim has the pid
		last++
		evs = append(evs, process.Event{Seq: last, Time: time.Now(), Body: process.Started{PID: known.PID}})
	}
	if last+1 < known.First {
		evs = append(evs, process.Hole(last, known.First-1))
	}
	return p.store(ctx, evs)
}

// maxGap is more events than any process writes, and keeps seqs far from overflow.
const maxGap = 1 << 40

// read reads the catalog's entry of a process, or else builds one from the record's
// first event. The start of a process that the entry does not have yet is read from the record.
func (ce *catalogEntry) read(ctx context.Context) error {
	sum, rev, err := ce.p.h.cfg.Log.Summary(ctx, ce.p.ref)
	if err == nil {
		ce.sum, ce.rev, ce.p.spec, ce.final = sum, rev, sum.Spec, !sum.Active()
		return ce.p.h.cfg.Log.AddStart(ctx, ce.p.ref, &ce.sum, ce.p.w.Last())
	}
	if !kind.Is(err, kind.NotFound) {
		return err
	}
	first, err := ce.p.accepted(ctx)
	if err != nil {
		return err
	}
	ce.p.spec = first.Spec
	ce.sum = process.Summary{ID: ce.p.id, Tenant: first.Tenant, Host: ce.p.ref.Host, Spec: first.Spec}
	return ce.p.h.cfg.Log.AddStart(ctx, ce.p.ref, &ce.sum, ce.p.w.Last())
}

// readTimeout bounds the read of a record that is known to exist.
const readTimeout = 10 * time.Second

// accepted reads the record's first event.
func (p *proc) accepted(ctx context.Context) (process.Accepted, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r := p.h.cfg.Log.Read(p.ref, 0)
	defer r.Close()
	batch, err := r.Next(ctx, 0)
	if err != nil {
		return process.Accepted{}, err
	}
	first, _ := batch[0].Body.(process.Accepted)
	return first, nil
}
