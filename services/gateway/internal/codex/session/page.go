package session

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
)

const (
	// maxPage is the maximum size of an answer of process/read, as encoded. A client closes the
	// connection on a frame of 16 MiB.
	maxPage = 8 << 20
	// recoveryPage is the size of the first answer about a process after a resume. The client
	// applies it concurrently with the notifications behind it, and gives up on a process once
	// 256 of them or 1 MiB wait for it: the answer must be applied quickly.
	recoveryPage = 256 << 10
	// smallPage is the size of an answer for which the tenant has no memory left.
	smallPage = 64 << 10
	// maxWait limits waitMs.
	maxWait = 5 * time.Minute
	// storedWait is how long stored events may take to arrive.
	storedWait = time.Second
)

// reading is a process/read in progress.
type reading struct {
	c      *conn
	p      *protocol.ReadParams
	proc   Process
	after  uint64
	tail   Tail
	src    Source
	tr     translator
	items  []item // translated and not in a page yet
	retain int    // bytes of the items, if the connection has Config.Retain
	ended  bool   // the record was read to its end
}

// read serves process/read.
func (c *conn) read(ctx context.Context, r *request, p *protocol.ReadParams) (any, error) {
	if err := await(ctx, r.turn.started); err != nil {
		return nil, err
	}
	proc, err := c.find(ctx, p.ProcessID)
	if kind.Is(err, kind.NotFound) {
		return nil, unknownProcess(p.ProcessID)
	}
	if err != nil {
		return nil, err
	}
	rd := &reading{c: c, p: p, proc: proc}
	if p.AfterSeq != nil {
		rd.after = *p.AfterSeq
	}
	if rd.tail, err = c.services.Records.Tail(ctx, proc.ID); err != nil {
		return nil, err
	}
	rd.tr = translator{next: rd.after + 1, exited: rd.tail.Exited != nil, tty: proc.TTY}
	rd.ended = rd.tail.Finished != nil && rd.after >= max(rd.tail.Last, unseen)-unseen
	if last := rd.tail.lastSeq(); rd.after > last { // no reader has seen such an event
		rd.tr.next = last + 1
	} else if err := rd.open(ctx); err != nil {
		return nil, err
	}
	if err := c.takeLarge(ctx, r); err != nil {
		return nil, err
	}
	if !c.feeds.recover(p.ProcessID) {
		out, _, err := rd.page(ctx, r.id, maxPage)
		return out, err
	}
	out, next, err := rd.page(ctx, r.id, recoveryPage)
	if err != nil {
		c.feeds.unmark(p.ProcessID) // the next read is the recovery
		return nil, err
	}
	r.after = func() { c.followFrom(ctx, proc, next, rd.tr.exited, recoveryHold) }
	return out, nil
}

// lastSeq returns the seq of the last event as stored, which may be one that is held back.
func (t *Tail) lastSeq() uint64 {
	last := max(t.Last, unseen) - unseen
	if t.Finished != nil && t.Exited == nil {
		last++ // exit and close share an event
	}
	return last
}

// open opens the record and waits until there is something to return, or the time is over.
func (rd *reading) open(ctx context.Context) error {
	var err error
	at := min(recordSeq(rd.after), max(rd.tail.Last, unseen))
	if rd.src, err = rd.c.services.Records.Read(ctx, rd.proc.ID, at); err != nil {
		return err
	}
	var wait time.Duration
	if rd.p.WaitMS != nil {
		wait = time.Duration(min(*rd.p.WaitMS, uint64(maxWait/time.Millisecond))) * time.Millisecond
	}
	until := time.Now().Add(wait)
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	full := rd.c.gate.pressed()
	go func() {
		select {
		case <-full:
			cancel()
		case <-waiting.Done():
		}
	}()
	for len(rd.items) == 0 && !rd.ended {
		if rd.stored() {
			if err := rd.step(ctx, storedWait); err != nil {
				return err
			}
			continue
		}
		left := time.Until(until)
		if left <= 0 {
			return nil
		}
		if err := rd.step(waiting, left); err != nil {
			if waiting.Err() != nil && ctx.Err() == nil {
				return nil // other requests need its place
			}
			return err
		}
	}
	return nil
}

// stored reports whether events are left that were stored when the read began.
func (rd *reading) stored() bool {
	return rd.src != nil && !rd.ended && rd.src.After() < rd.tail.Last
}

// step reads the next events.
func (rd *reading) step(ctx context.Context, idle time.Duration) error {
	batch, err := rd.src.Next(ctx, idle)
	from := len(rd.items)
	for i := range batch {
		rd.items = rd.tr.append(rd.items, &batch[i])
		if f, ok := batch[i].Body.(process.Finished); ok {
			rd.ended = true
			rd.tail.Finished = &f
		}
	}
	if rd.c.cfg.Retain > 0 {
		rd.drop(from)
	}
	if errors.Is(err, io.EOF) {
		rd.ended, err = true, nil
	}
	return err
}

// drop drops the oldest output beyond the limit of the operator. The items from index
// from on are new.
func (rd *reading) drop(from int) {
	for i := from; i < len(rd.items); i++ {
		rd.retain += len(rd.items[i].data)
	}
	n := 0
	for n < len(rd.items)-1 && rd.retain > rd.c.cfg.Retain && rd.items[n].kind == itemOutput {
		rd.retain -= len(rd.items[n].data)
		n++
	}
	rd.items = append(rd.items[:0], rd.items[n:]...)
}

// page returns an answer of at most limit bytes, if that is enough for a chunk, and the seq at
// which the next page begins.
func (rd *reading) page(ctx context.Context, id []byte, limit int) (answer, uint64, error) {
	if rd.src != nil {
		defer rd.src.Close()
	}
	if b := rd.c.cfg.Budget; b != nil {
		if release, err := b.Reserve(limit); err == nil {
			defer release()
		} else {
			limit = smallPage
		}
	}
	if rd.c.cfg.Retain > 0 { // what is dropped depends on everything behind it
		for rd.stored() {
			if err := rd.step(ctx, storedWait); err != nil {
				return nil, 0, err
			}
		}
	}
	b := pageBuilder{out: protocol.NewReadAnswer(nil, id), limit: limit, maxBytes: rd.p.MaxBytes}
	var full bool
	for {
		n := b.add(rd.items)
		full = n < len(rd.items)
		rd.items = rd.items[n:]
		if full || !rd.stored() {
			break
		}
		rd.items = rd.items[:0]
		if err := rd.step(ctx, storedWait); err != nil {
			return nil, 0, err
		}
	}
	st := b.state
	st.NextSeq = rd.tr.next
	if full {
		st.NextSeq = rd.items[0].seq
	} else {
		rd.complete(&st)
	}
	return b.out.Close(st), st.NextSeq, nil
}

// complete adds what the client saw before, or sees without an item, to a page that reaches
// the end of the record.
func (rd *reading) complete(st *protocol.ReadState) {
	exit := rd.tail.Exited
	if f := rd.tail.Finished; f != nil && rd.ended {
		exit = &f.Exit
		if !st.Closed {
			// Without an Exited, exit and close share one event of the record.
			for _, i := range rd.tr.rest(nil, rd.tail.Last, exit) {
				st.NextSeq = i.seq + 1
			}
		}
		st.Closed = true
	}
	if exit != nil {
		st.Exited, st.ExitCode, st.Failure = true, exitCode(exit), failure(exit)
	}
}

// pageBuilder fills one answer.
type pageBuilder struct {
	out      *protocol.ReadAnswer
	limit    int
	maxBytes *uint64
	bytes    uint64 // of the chunks
	chunks   int
	state    protocol.ReadState
}

// add adds items until the page is full, and returns how many.
func (b *pageBuilder) add(items []item) int {
	for n := range items {
		i := &items[n]
		switch i.kind {
		case itemOutput:
			size := uint64(len(i.data))
			if b.chunks > 0 && (b.maxBytes != nil && b.bytes+size > *b.maxBytes || b.out.Len()+protocol.ChunkSize(len(i.data)) > b.limit) {
				return n
			}
			b.out.Chunk(i.seq, i.stream, i.data)
			b.bytes += size
			b.chunks++
		case itemExited:
			b.exit(i.exit)
		case itemClosed:
			b.exit(i.exit)
			b.state.Closed = true
		}
	}
	return len(items)
}

func (b *pageBuilder) exit(x *process.Exit) {
	b.state.Exited, b.state.ExitCode, b.state.Failure = true, exitCode(x), failure(x)
}
