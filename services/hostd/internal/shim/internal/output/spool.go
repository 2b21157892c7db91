package output

import (
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// blockSize is the size of a buffer for reading pipes.
const blockSize = wire.MaxData / 2

// entryCost is the cost of an entry besides the memory of its output.
const entryCost = 128

// entry is one event that is not acknowledged yet.
type entry struct {
	seq     uint64
	time    int64
	stream  process.Stream // 0: the event is body; otherwise offset and data
	frozen  bool           // was sent, must not change
	aliased bool           // data is part of other memory
	offset  uint64
	data    []byte
	body    process.Body
}

func (e *entry) at() time.Time { return time.Unix(0, e.time) }
func (e *entry) cost() int     { return entryCost + cap(e.data) }
func (e *entry) flight() int   { return wire.EventCost + len(e.data) }

// appendHead appends e's frame, for output without the data.
func (e *entry) appendHead(dst []byte, token string) []byte {
	if e.stream == 0 {
		ev := process.Event{Time: e.at(), Body: e.body}
		return wire.AppendEvent(dst, token, e.seq, func(dst []byte) []byte { return process.AppendEvent(dst, &ev) })
	}
	o := wire.Output{Token: token, Seq: e.seq, Time: e.time, Stream: uint8(e.stream), Offset: e.offset, Data: e.data}
	return wire.AppendOutputHead(dst, &o)
}

// appendFrame appends all of e's frame.
func (e *entry) appendFrame(dst []byte, token string) []byte {
	return append(e.appendHead(dst, token), e.data...)
}

// outputEntry and eventEntry parse what appendFrame wrote.
func outputEntry(payload []byte) (entry, error) {
	o, err := wire.ParseOutput(payload)
	return entry{
		seq: o.Seq, time: o.Time, stream: process.Stream(o.Stream), offset: o.Offset,
		data: o.Data[:len(o.Data):len(o.Data)], aliased: true,
	}, err
}

func eventEntry(payload []byte) (entry, error) {
	f, err := wire.ParseEvent(payload)
	if err != nil {
		return entry{}, err
	}
	ev, err := process.ParseEvent(f.Event)
	return entry{seq: f.Seq, time: ev.Time.UnixNano(), body: ev.Body}, err
}

// spool holds the events of a process from the first unacknowledged one on: entries, then
// those on disk, then those made after them.
type spool struct {
	entries     []entry // those before head are acknowledged
	head        int
	next        int // index of the first that was not sent on this connection
	extents     []extent
	newer       []entry // events made after extents, otherwise empty
	count       int     // number of events in all three
	last        uint64  // seq of the newest event
	bytes       int     // cost of everything in memory
	unsentBytes int     // the part of bytes that was never sent
	flight      int     // bytes sent but not acknowledged
	resumed     bool    // hostd sent Resume on this connection

	sentEnd [4]uint64     // per stream: end offset of the output that was ever sent
	state   process.State // after the events that were ever sent
}

func (q *spool) len() int      { return q.count }
func (q *spool) first() uint64 { return q.last + 1 - uint64(q.count) }

// newest returns the slice that the next event is appended to.
func (q *spool) newest() *[]entry {
	if len(q.extents) > 0 {
		return &q.newer
	}
	return &q.entries
}

// tail returns the last event if it may still grow.
func (q *spool) tail() *entry {
	all := *q.newest()
	if len(all) == 0 || len(q.extents) == 0 && q.head == len(all) {
		return nil
	}
	if e := &all[len(all)-1]; !e.frozen && !e.aliased {
		return e
	}
	return nil
}

// addBytes counts n more bytes of unsent events.
func (q *spool) addBytes(n int) {
	q.bytes += n
	q.unsentBytes += n
}

// push appends an event and assigns its seq.
func (q *spool) push(e entry) (seq uint64) {
	q.last++
	q.count++
	e.seq = q.last
	all := q.newest()
	*all = append(*all, e)
	q.addBytes(e.cost())
	return e.seq
}

// sendable reports whether an event waits and the window has space for it.
func (q *spool) sendable() bool {
	return q.resumed && q.flight < wire.WindowProcess && (q.next < len(q.entries) || len(q.extents) > 0)
}

// nextOnDisk reports whether the next event to send is on disk.
func (q *spool) nextOnDisk() bool { return q.next == len(q.entries) && len(q.extents) > 0 }

// send returns the next event to send, which is in memory, and counts it as in flight.
func (q *spool) send() *entry {
	e := &q.entries[q.next]
	q.freeze(e)
	q.next++
	q.flight += e.flight()
	return e
}

func (q *spool) freeze(e *entry) {
	if e.frozen {
		return
	}
	e.frozen = true
	q.unsentBytes -= e.cost()
	switch e.body.(type) {
	case nil:
		q.sentEnd[e.stream] = e.offset + uint64(len(e.data))
	case process.Started:
		q.state = process.StateRunning
	case process.Exited:
		q.state = process.StateExited
	case process.Finished:
		q.state = process.StateFinished
	default: // the others do not change the state
	}
}

// unsent returns the events in memory that were never sent, behind all those on disk.
func (q *spool) unsent() []entry {
	all, from := q.newer, 0
	if len(q.extents) == 0 {
		all, from = q.entries, q.head
	}
	i := len(all)
	for i > from && !all[i-1].frozen {
		i--
	}
	return all[i:]
}

// movedToDisk records that the first n events of unsent are on disk now.
func (q *spool) movedToDisk(n int, x extent, free func([]byte)) {
	loose := q.unsent()
	for i := range loose[:n] {
		q.bytes -= loose[i].cost()
		q.unsentBytes -= loose[i].cost()
		loose[i].release(free)
	}
	rest := append([]entry(nil), loose[n:]...)
	all := q.newest()
	clear(loose)
	*all = (*all)[:len(*all)-len(loose)]
	q.extents = append(q.extents, x)
	q.newer = rest
}

// loaded puts the events of the first extent back into memory.
func (q *spool) loaded(loaded []entry) {
	for i := range loaded {
		q.addBytes(loaded[i].cost())
	}
	q.entries = append(q.entries, loaded...)
	if q.extents = q.extents[1:]; len(q.extents) == 0 {
		q.entries = append(q.entries, q.newer...)
		q.extents, q.newer = nil, nil
	}
}

// rewind makes a new connection start before the first event.
func (q *spool) rewind() { q.next, q.flight, q.resumed = q.head, 0, false }

// resume continues after seq; ok is false if seq is not in the spool. Events that hostd
// already has and did not acknowledge are in flight, whichever connection sent them.
func (q *spool) resume(seq uint64) (ok bool) {
	if seq+1 < q.first() || seq > q.last || seq+1-q.first() > uint64(len(q.entries)-q.head) {
		return false
	}
	q.next, q.flight, q.resumed = q.head+int(seq+1-q.first()), 0, true
	for i := q.head; i < q.next; i++ {
		q.freeze(&q.entries[i])
		q.flight += q.entries[i].flight()
	}
	return true
}

// sent returns the seq of the last event that hostd may have.
func (q *spool) sent() uint64 { return q.first() + uint64(q.next-q.head) - 1 }

// drop removes the events up to seq, which were sent, passes the output memory of each to
// free, and returns how many bytes were in flight.
func (q *spool) drop(seq uint64, free func([]byte)) (acked int) {
	for q.head < len(q.entries) && q.entries[q.head].seq <= seq {
		e := &q.entries[q.head]
		if q.head < q.next {
			acked += e.flight()
		}
		q.bytes -= e.cost()
		e.release(free)
		q.head++
		q.count--
	}
	q.next = max(q.next, q.head)
	q.flight -= acked
	q.compact()
	return acked
}

// dropUnsent removes all events that were never sent, in memory and on disk.
func (q *spool) dropUnsent(free func([]byte), back func(extent)) {
	end := q.head
	for end < len(q.entries) && q.entries[end].frozen {
		end++
	}
	for _, all := range [][]entry{q.entries[end:], q.newer} {
		for i := range all {
			q.bytes -= all[i].cost()
			all[i].release(free)
		}
	}
	for _, x := range q.extents {
		back(x)
	}
	kept := end - q.head
	q.last = q.first() + uint64(kept) - 1
	q.entries, q.extents, q.newer, q.count, q.unsentBytes = q.entries[:end], nil, nil, kept, 0
}

// clear removes all events and frees their extents.
func (q *spool) clear(free func([]byte), back func(extent)) {
	for _, x := range q.extents {
		back(x)
	}
	for _, all := range [][]entry{q.entries[q.head:], q.newer} {
		for i := range all {
			all[i].release(free)
		}
	}
	*q = spool{last: q.last}
}

// release frees the memory of e's output.
func (e *entry) release(free func([]byte)) {
	if !e.aliased {
		free(e.data)
	}
	*e = entry{}
}

func (q *spool) compact() {
	switch n := len(q.entries) - q.head; {
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
