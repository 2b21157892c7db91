package output

import (
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/redact"
)

// Record has the events of one process, from the first unacknowledged one on. The owner must
// not call its methods concurrently if the order of the events matters.
type Record struct {
	b       *Buffer
	token   string
	spool   spool
	queued  bool // in Buffer.ready
	blocked int  // streams that wait for space in the spool

	moved   bool      // hostd was not informed yet that it belongs to this sandbox
	after   uint64    // if moved: see wire.Moved
	offsets [4]uint64 // per stream: of the next byte

	redact     *redact.Set // nil: output is recorded as it is
	held       [4][]byte   // per stream: output that is recorded at its end unless more of it arrives
	memoryOnly bool        // nothing goes to the disk

	closed    bool // Finished was recorded, or the record was discarded: output is dropped
	discarded bool // nothing is recorded any more
	concluded bool // see Conclude

	wroteAt   time.Time // time of the last output
	readyAt   time.Time // since when output can be read again, after a full spool or a pause
	sendTimer *time.Timer
	pace      pace
	recorded  uint64 // bytes of output
	dropped   map[process.Stream]*drops
}

// NewRecord returns the record of a process that hostd started: Accepted is in it, and
// nothing else, and hostd needs no Resume.
func (b *Buffer) NewRecord(token string) *Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &Record{b: b, token: token, spool: spool{last: 1, resumed: true}}
	r.pace.rate = b.limits.Rate
	b.records[r] = struct{}{}
	return r
}

// Restrict sets what is replaced in the output, and that no output is written to the disk. It must be
// called before NewStream.
func (r *Record) Restrict(set *redact.Set, memoryOnly bool) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.redact, r.memoryOnly = set, memoryOnly
}

// NewDiscarded returns a record of a process that hostd knows nothing of, which stays empty.
func (b *Buffer) NewDiscarded() *Record { return &Record{b: b, discarded: true} }

// Range returns the seqs of the first unacknowledged event and of the last event.
func (r *Record) Range() (first, last uint64) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return r.spool.first(), r.spool.last
}

// Moved returns the seq after which the record continues that of another sandbox, until an
// event of it is acknowledged.
func (r *Record) Moved() (after uint64, ok bool) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return r.after, r.moved
}

// Exceeds reports whether the events in memory are that many bytes beyond the limit of a
// process.
func (r *Record) Exceeds(more uint64) bool {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return uint64(r.spool.bytes) > r.b.limits.SpoolProcess+more
}

// Append appends an event that is not output, and returns its seq, or 0 if the record was
// discarded.
func (r *Record) Append(b process.Body) uint64 {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return r.record(b)
}

// record is Append with mu held.
func (r *Record) record(b process.Body) uint64 {
	seq := r.push(entry{time: time.Now().UnixNano(), body: b})
	r.b.enqueue(r)
	return seq
}

// push appends an event and returns its seq, or 0 if the record was discarded.
func (r *Record) push(e entry) uint64 {
	if r.discarded {
		return 0
	}
	e.seq = r.spool.push(e)
	r.b.bytes += e.cost()
	if r.b.spilling() {
		r.spill()
	}
	return e.seq
}

// ackDelay is how long an event of AppendSoon waits for other events.
const ackDelay = 3 * time.Millisecond

// AppendSoon is Append for an event that waits a moment for the output that it usually
// causes, so that both are stored in one message.
func (r *Record) AppendSoon(b process.Body) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.push(entry{time: time.Now().UnixNano(), body: b})
	if r.sendTimer != nil {
		r.sendTimer.Reset(ackDelay)
		return
	}
	r.sendTimer = time.AfterFunc(ackDelay, func() {
		r.b.mu.Lock()
		defer r.b.mu.Unlock()
		r.b.enqueue(r)
	})
}

// Resume handles wire.TypeResume: hostd has everything up to seq. It reports whether that is
// possible.
func (r *Record) Resume(seq uint64) bool {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flight -= r.spool.flight
	if !r.spool.resume(seq) {
		return false
	}
	b.flight += r.spool.flight
	b.enqueue(r)
	return true
}

// Ack handles wire.TypeAck: everything up to seq is stored. It reports whether that is
// possible, and whether the record is complete and hostd has all of it.
func (r *Record) Ack(seq uint64) (complete, ok bool) {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if !r.spool.resumed || seq > r.spool.sent() {
		return false, false
	}
	r.moved = false
	was := r.spool.bytes
	b.freeWindow(r.spool.drop(seq, b.free))
	b.bytes -= was - r.spool.bytes
	b.ackedAt, b.stalled = time.Now(), false
	b.readable.Broadcast()
	if r.closed && r.spool.len() == 0 {
		delete(b.records, r)
		return true, true
	}
	b.enqueue(r)
	return false, true
}

// Discard drops all past and future events.
func (r *Record) Discard() {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	r.closed, r.discarded = true, true
	b.bytes -= r.spool.bytes
	acked := r.spool.flight
	r.spool.clear(b.free, b.freeExtent)
	if b.wake != nil {
		b.freeWindow(acked)
	}
	b.readable.Broadcast()
	delete(b.records, r)
}

// Fail completes the record of a process that never ran.
func (r *Record) Fail(f process.Failed) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.record(f)
	r.record(process.Finished{Exit: process.Exit{Cause: process.CauseNotStarted, Message: f.Message}})
	r.closed = true
}

// Finish completes the record. Later output is dropped.
func (r *Record) Finish(exit process.Exit) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.finish(exit)
}

func (r *Record) finish(exit process.Exit) {
	for id := range r.held { // the end of a stream that others still have open
		r.recordHeld(process.Stream(id))
	}
	r.recordDropped(true)
	r.record(process.Finished{Exit: exit})
	r.closed = true
}

// Conclude completes the record of an ended process after the last event that was sent, with
// the amount of output that is missing and the exit. It reports whether it did: a record is
// concluded once, and not if all of it was sent.
func (r *Record) Conclude(pid int, exit process.Exit) bool {
	b, q := r.b, &r.spool
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.concluded || r.discarded || q.state == process.StateFinished {
		return false
	}
	r.concluded = true
	was := q.bytes
	q.dropUnsent(b.free, b.freeExtent)
	b.bytes -= was - q.bytes
	for id, offset := range r.offsets {
		if n := offset - q.sentEnd[id] + uint64(len(r.held[id])); n > 0 {
			r.drops(process.Stream(id)).n += n
		}
		r.held[id] = nil
	}
	if q.state < process.StateRunning {
		r.record(process.Started{PID: uint32(pid)})
	}
	if q.state < process.StateExited {
		r.record(process.Exited{Exit: exit})
	}
	for _, d := range r.dropped { // the last Truncated may be among the removed events
		d.recorded = 0
	}
	r.finish(exit)
	b.readable.Broadcast()
	return true
}

// Activity is what a record shows of its streams.
type Activity struct {
	Wrote   time.Time // time of the last output
	Ready   time.Time // since when output can be read, after a full spool or a pause
	Blocked bool      // there is output, but no space for it
}

// Activity returns the current activity.
func (r *Record) Activity() Activity {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return Activity{Wrote: r.wroteAt, Ready: r.readyAt, Blocked: r.blocked > 0}
}

// SetReady records that output can be read only since then: the sandbox was paused.
func (r *Record) SetReady(at time.Time) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.readyAt = at
}
