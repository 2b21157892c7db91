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
	lent   bool           // data is part of other memory
	offset uint64
	data   []byte
	body   process.Body
}

func (e *entry) at() time.Time { return time.Unix(0, e.time) }
func (e *entry) cost() int     { return entryCost + cap(e.data) }
func (e *entry) flight() int   { return wire.EventCost + len(e.data) }

// appendHead appends e's frame, of an output all but the data.
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

// outputEntry and eventEntry read what appendFrame wrote.
func outputEntry(payload []byte) (entry, error) {
	o, err := wire.ParseOutput(payload)
	return entry{
		seq: o.Seq, time: o.Time, stream: process.Stream(o.Stream), offset: o.Offset,
		data: o.Data[:len(o.Data):len(o.Data)], lent: true,
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

// spool holds a process's events from the first that was not acked on: entries,
// then what is on the disk, then what was made after that.
type spool struct {
	entries []entry // those before head are acked
	head    int
	next    int // the first that was not sent on this connection
	extents []extent
	back    []entry // empty if extents is
	held    int     // events in all three
	last    uint64  // seq of the last event made
	bytes   int     // cost of all that is in memory
	loose   int     // that of what was never sent
	flight  int     // sent and not acked
	resumed bool    // hostd said where to go on

	told  [4]uint64     // by stream: where the output ends that was ever sent
	state process.State // that follows from what was ever sent
}

func (q *spool) len() int      { return q.held }
func (q *spool) first() uint64 { return q.last + 1 - uint64(q.held) }

// newest is where the next event goes.
func (q *spool) newest() *[]entry {
	if len(q.extents) > 0 {
		return &q.back
	}
	return &q.entries
}

// tail is the last event if it may still grow.
func (q *spool) tail() *entry {
	all := *q.newest()
	if len(all) == 0 || len(q.extents) == 0 && q.head == len(all) {
		return nil
	}
	if e := &all[len(all)-1]; !e.frozen && !e.lent {
		return e
	}
	return nil
}

// grown counts what tail grew by.
func (q *spool) grown(n int) {
	q.bytes += n
	q.loose += n
}

// push appends an event and gives it its seq.
func (q *spool) push(e entry) (seq uint64) {
	q.last++
	q.held++
	e.seq = q.last
	all := q.newest()
	*all = append(*all, e)
	q.grown(e.cost())
	return e.seq
}

// sendable reports whether an event waits that the window has room for.
func (q *spool) sendable() bool {
	return q.resumed && q.flight < wire.WindowProcess && (q.next < len(q.entries) || len(q.extents) > 0)
}

// starved reports whether what is to be sent next is on the disk.
func (q *spool) starved() bool { return q.next == len(q.entries) && len(q.extents) > 0 }

// send gives the next event to be sent, which is in memory; it is in flight from
// then on.
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
	q.loose -= e.cost()
	switch e.body.(type) {
	case nil:
		q.told[e.stream] = e.offset + uint64(len(e.data))
	case process.Started:
		q.state = process.StateRunning
	case process.Exited:
		q.state = process.StateExited
	case process.Finished:
		q.state = process.StateFinished
	default: // nothing follows from the others
	}
}

// unsent is what was never sent and is in memory, behind all that is on the disk.
func (q *spool) unsent() []entry {
	all, from := q.back, 0
	if len(q.extents) == 0 {
		all, from = q.entries, q.head
	}
	i := len(all)
	for i > from && !all[i-1].frozen {
		i--
	}
	return all[i:]
}

// moved says that the first n of unsent are on the disk now.
func (q *spool) moved(n int, x extent, free func([]byte)) {
	loose := q.unsent()
	for i := range loose[:n] {
		q.bytes -= loose[i].cost()
		q.loose -= loose[i].cost()
		loose[i].release(free)
	}
	rest := append([]entry(nil), loose[n:]...)
	all := q.newest()
	clear(loose)
	*all = (*all)[:len(*all)-len(loose)]
	q.extents = append(q.extents, x)
	q.back = rest
}

// returned puts the events of the first extent back into memory.
func (q *spool) returned(loaded []entry) {
	for i := range loaded {
		q.grown(loaded[i].cost())
	}
	q.entries = append(q.entries, loaded...)
	if q.extents = q.extents[1:]; len(q.extents) == 0 {
		q.entries = append(q.entries, q.back...)
		q.extents, q.back = nil, nil
	}
}

// rewind makes a new connection begin before the first event held.
func (q *spool) rewind() { q.next, q.flight, q.resumed = q.head, 0, false }

// resume goes on after seq; ok is false if seq is no place in the spool. What
// hostd has already and did not ack is in flight, whichever connection sent it.
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

// sent is the seq of the last event that hostd may know of.
func (q *spool) sent() uint64 { return q.first() + uint64(q.next-q.head) - 1 }

// drop forgets the events up to seq, which were sent, gives the output memory of
// each to free, and tells how much of the flight that was.
func (q *spool) drop(seq uint64, free func([]byte)) (landed int) {
	for q.head < len(q.entries) && q.entries[q.head].seq <= seq {
		e := &q.entries[q.head]
		if q.head < q.next {
			landed += e.flight()
		}
		q.bytes -= e.cost()
		e.release(free)
		q.head++
		q.held--
	}
	q.next = max(q.next, q.head)
	q.flight -= landed
	q.compact()
	return landed
}

// cut forgets what was never sent, wherever it is.
func (q *spool) cut(free func([]byte), back func(extent)) {
	end := q.head
	for end < len(q.entries) && q.entries[end].frozen {
		end++
	}
	for _, all := range [][]entry{q.entries[end:], q.back} {
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
	q.entries, q.extents, q.back, q.held, q.loose = q.entries[:end], nil, nil, kept, 0
}

// clear forgets everything, and gives back what is on the disk.
func (q *spool) clear(free func([]byte), back func(extent)) {
	for _, x := range q.extents {
		back(x)
	}
	for _, all := range [][]entry{q.entries[q.head:], q.back} {
		for i := range all {
			all[i].release(free)
		}
	}
	*q = spool{last: q.last}
}

// release gives back the memory of e's output.
func (e *entry) release(free func([]byte)) {
	if !e.lent {
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
