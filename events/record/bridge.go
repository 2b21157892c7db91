package record

import (
	"slices"

	"github.com/millrace/millrace/events/process"
)

// bridged is a message and its expectation before a gap was put before it.
type bridged struct {
	rev  uint64
	buf  []byte
	head int
}

// bridge puts a gap before the message to store, if the record ends, with message b at stream
// sequence rev, before events that the log had acknowledged. It returns false if b is not a
// message of this writer's host, or if b ends the record.
func (w *Writer) bridge(rev uint64, b *process.Batch) bool {
	tail := tailOfBatch(rev, b)
	if tail.Finished != nil || b.Host != w.ref.Host || b.Epoch > w.epoch || tail.Last >= w.last {
		return false
	}
	w.l.conn.Log().Error("the log lost stored events", "process", w.ref.ID, "from", tail.Last+1, "to", w.last)
	if w.bridged == nil {
		w.bridged = &bridged{w.rev, w.buf, w.head}
	}
	head := process.Batch{
		Sandbox: string(w.ref.ID.Sandbox()), Process: w.ref.ID.Token(),
		Host: w.ref.Host, Epoch: w.epoch, FirstSeq: w.last, Exited: w.exited,
	}
	gap := process.Hole(tail.Last, w.last)
	buf := process.AppendBatchHead(nil, &head)
	w.head = len(buf)
	buf = process.AppendBatchFrame(buf, &gap)
	w.buf = slices.Concat(buf, w.bridged.buf[w.bridged.head:])
	w.rev = rev
	return true
}

// unbridge undoes the changes made by bridge.
func (w *Writer) unbridge() {
	w.rev, w.buf, w.head, w.bridged = w.bridged.rev, w.bridged.buf, w.bridged.head, nil
}
