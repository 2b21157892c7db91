package shim

import (
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// blockSize is that of the memory that pipes are read into.
const blockSize = wire.MaxData / 2

// entryCost is what an entry counts besides the memory of its output.
const entryCost = 128

// entry is one event that waits to be acked.
type entry struct {
	seq    uint64
	time   int64
	stream process.Stream // 0: body counts; otherwise offset and data
	frozen bool           // was sent: must stay what it is
	offset uint64
	data   []byte
	body   process.Body
}

func (e *entry) at() time.Time { return time.Unix(0, e.time) }
func (e *entry) cost() int     { return entryCost + cap(e.data) }
func (e *entry) flight() int   { return wire.EventCost + len(e.data) }

// spool holds a process's events from the first that was not acked on.
type spool struct {
	entries []entry // those before head are acked
	head    int
	next    int    // the first that was not sent on this connection
	last    uint64 // seq of the last event made
	bytes   int    // cost of all that is held
	flight  int    // sent and not acked
	resumed bool   // hostd said where to go on
}

func (q *spool) len() int      { return len(q.entries) - q.head }
func (q *spool) first() uint64 { return q.last + 1 - uint64(q.len()) }

// tail is the last event if it may still grow.
func (q *spool) tail() *entry {
	if q.len() == 0 {
		return nil
	}
	if e := &q.entries[len(q.entries)-1]; !e.frozen {
		return e
	}
	return nil
}

// push appends an event and gives it its seq.
func (q *spool) push(e entry) *entry {
	q.last++
	e.seq = q.last
	q.entries = append(q.entries, e)
	q.bytes += e.cost()
	return &q.entries[len(q.entries)-1]
}

// sendable reports whether an event waits that the window has room for.
func (q *spool) sendable() bool {
	return q.resumed && q.next < len(q.entries) && q.flight < wire.WindowProcess
}

// send gives the next event to be sent; it is in flight from then on.
func (q *spool) send() *entry {
	e := &q.entries[q.next]
	e.frozen = true
	q.next++
	q.flight += e.flight()
	return e
}

// rewind makes a new connection begin before the first event held.
func (q *spool) rewind() { q.next, q.flight, q.resumed = q.head, 0, false }

// resume goes on after seq; ok is false if seq is no place in the spool. What
// hostd has already and did not ack is in flight, whichever connection sent it.
func (q *spool) resume(seq uint64) (ok bool) {
	if seq+1 < q.first() || seq > q.last {
		return false
	}
	q.next, q.flight, q.resumed = q.head+int(seq+1-q.first()), 0, true
	for i := q.head; i < q.next; i++ {
		q.entries[i].frozen = true
		q.flight += q.entries[i].flight()
	}
	return true
}

// sent is the seq of the last event that hostd may know of.
func (q *spool) sent() uint64 { return q.first() + uint64(q.next-q.head) - 1 }

// drop forgets the events up to seq, which were sent, gives the output memory of
// each to free, and tells how much of the flight that was.
func (q *spool) drop(seq uint64, free func([]byte)) (landed int) {
	for q.len() > 0 && q.entries[q.head].seq <= seq {
		e := &q.entries[q.head]
		if q.head < q.next {
			landed += e.flight()
		}
		q.bytes -= e.cost()
		free(e.data)
		*e = entry{}
		q.head++
	}
	q.next = max(q.next, q.head)
	q.flight -= landed
	q.compact()
	return landed
}

func (q *spool) compact() {
	switch n := q.len(); {
	case n == 0:
		if cap(q.entries) > 16 {
			q.entries = nil
		}
		q.entries, q.next, q.head = q.entries[:0], 0, 0
	case q.head >= 64 && q.head >= n:
		copy(q.entries, q.entries[q.head:])
		clear(q.entries[n:])
		q.entries, q.next, q.head = q.entries[:n], q.next-q.head, 0
	}
}
