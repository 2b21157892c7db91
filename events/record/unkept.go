package record

import (
	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/process"
)

// unkept is output that the host sent to those attached and does not store. It waits for the events
// that stand for it, so that readers see the order of the record. The zero value is empty.
type unkept struct {
	bySeq map[process.Seq]process.Wrote
	size  int
}

// add adds a message of [Writer.PublishLive]. What is more than a tail keeps in memory is ignored, as
// is a message that is not of the record.
func (u *unkept) add(ref *Ref, data []byte) {
	b, err := codec.ParseBatch(data)
	if err != nil || b.Sandbox != string(ref.ID.Sandbox()) || b.Process != ref.ID.Token() {
		return
	}
	for i := range b.Events {
		w, ok := b.Events[i].Body.(process.Wrote)
		if !ok || u.size+len(w.Data) > recentBytes {
			continue
		}
		if u.bySeq == nil {
			u.bySeq = make(map[process.Seq]process.Wrote)
		}
		u.size += len(w.Data) - len(u.bySeq[b.Events[i].Seq].Data) // the host sends it again after a failure
		u.bySeq[b.Events[i].Seq] = w
	}
}

// restore puts output in place of the events that stand for it, and forgets what is before the end of
// chunks.
func (u *unkept) restore(chunks []chunk) {
	if len(u.bySeq) == 0 {
		return
	}
	for i := range chunks {
		c := &chunks[i]
		for j := range c.events {
			o, ok := c.events[j].Body.(process.Omitted)
			if !ok {
				continue
			}
			if w, ok := u.bySeq[c.events[j].Seq]; ok && w.Stream == o.Stream && w.Offset == o.Offset && uint64(len(w.Data)) == o.Bytes {
				c.events[j].Body = w
				c.size += len(w.Data)
			}
		}
	}
	last := chunks[len(chunks)-1].seq
	for seq, w := range u.bySeq {
		if seq <= last {
			delete(u.bySeq, seq)
			u.size -= len(w.Data)
		}
	}
}
