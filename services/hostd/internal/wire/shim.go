package wire

import (
	"encoding/binary"

	"github.com/millrace/millrace/events/kind"
)

// Hello is the shim's answer to Attach.
type Hello struct{ Processes []Process }

// Process is a process that the shim has not forgotten.
type Process struct {
	Token string
	PID   uint32 // 0: it never ran
	First uint64 // seq of the first unacknowledged event
	Last  uint64 // seq of the last event; First-1 if all are acknowledged
	Rev   uint64 // of the last command taken
	Moved *Moved // nil: started in this sandbox; not part of the frame
}

// AppendHello appends h as a frame.
func AppendHello(dst []byte, h *Hello) []byte {
	return AppendFrame(dst, TypeHello, func(dst []byte) []byte {
		dst = putU32(putVersion(dst), uint32(len(h.Processes)))
		for i := range h.Processes {
			p := &h.Processes[i]
			dst = putU32(putToken(dst, p.Token), p.PID)
			dst = putU64(putU64(putU64(dst, p.First), p.Last), p.Rev)
		}
		return dst
	})
}

// ParseHello parses what AppendHello wrote. ErrMalformed also reports another protocol.
func ParseHello(b []byte) (Hello, error) {
	d := dec{b: b}
	if err := d.version(); err != nil {
		return Hello{}, err
	}
	var h Hello
	for n := d.u32(); n > 0 && d.err == nil; n-- {
		h.Processes = append(h.Processes, Process{Token: d.token(), PID: d.u32(), First: d.u64(), Last: d.u64(), Rev: d.u64()})
	}
	return h, d.end()
}

// Moved is sent before Hello for a process that comes from the sandbox whose memory this
// one was restored from. Its record begins anew: besides Started, its first events are
// those after After in the old record. It is repeated until an event is acknowledged.
type Moved struct {
	Token string
	After uint64 // the last event that was acknowledged there
	Spec  []byte // process.AppendSpec
}

// AppendMoved appends m as a frame.
func AppendMoved(dst []byte, m *Moved) []byte {
	return AppendFrame(dst, TypeMoved, func(dst []byte) []byte {
		return putBytes(putU64(putToken(dst, m.Token), m.After), m.Spec)
	})
}

// ParseMoved parses what AppendMoved wrote; Spec shares b's memory.
func ParseMoved(b []byte) (Moved, error) {
	d := dec{b: b}
	m := Moved{Token: d.token(), After: d.u64(), Spec: d.bytes()}
	return m, d.end()
}

// Output is a process.Wrote: the hot frame. Its data is never copied by the shim, so its
// head is written separately.
type Output struct {
	Token  string
	Seq    uint64
	Time   int64 // Unix nanoseconds
	Stream uint8
	Offset uint64
	Data   []byte
}

const outputHead = TokenLen + 8 + 8 + 8 + 1

// AppendOutputHead appends o's frame without the data, which must follow.
func AppendOutputHead(dst []byte, o *Output) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(outputHead+len(o.Data)))
	dst = append(dst, byte(TypeOutput), 0, 0, 0)
	dst = putU64(putU64(putU64(putToken(dst, o.Token), o.Seq), uint64(o.Time)), o.Offset)
	return append(dst, o.Stream)
}

// ParseOutput parses an output frame; Data shares b's memory.
func ParseOutput(b []byte) (Output, error) {
	d := dec{b: b}
	o := Output{Token: d.token(), Seq: d.u64(), Time: int64(d.u64()), Offset: d.u64(), Stream: d.u8()}
	o.Data = d.b
	return o, d.err
}

// Event is any other event of a process.
type Event struct {
	Token string
	Seq   uint64
	Event []byte // process.AppendEvent
}

// AppendEvent appends a frame for the event whose bytes f appends.
func AppendEvent(dst []byte, token string, seq uint64, f func([]byte) []byte) []byte {
	return AppendFrame(dst, TypeEvent, func(dst []byte) []byte { return f(putU64(putToken(dst, token), seq)) })
}

// ParseEvent parses what AppendEvent wrote; Event shares b's memory.
func ParseEvent(b []byte) (Event, error) {
	d := dec{b: b}
	e := Event{Token: d.token(), Seq: d.u64()}
	e.Event = d.b
	return e, d.err
}

// Reply is the result of the command with that Rev. It is valid once the process's event
// After is stored; 0: at once.
type Reply struct {
	Rev    uint64
	After  uint64
	Kind   kind.Kind // valid with Error
	Error  string    // empty: success
	Offset uint64
}

// AppendReply appends r as a frame.
func AppendReply(dst []byte, r *Reply) []byte {
	return AppendFrame(dst, TypeReply, func(dst []byte) []byte {
		dst = putU32(putU64(putU64(dst, r.Rev), r.After), uint32(r.Kind))
		return putU64(putBytes(dst, r.Error), r.Offset)
	})
}

// ParseReply parses what AppendReply wrote.
func ParseReply(b []byte) (Reply, error) {
	d := dec{b: b}
	r := Reply{Rev: d.u64(), After: d.u64(), Kind: kind.Kind(d.u32()), Error: d.str(), Offset: d.u64()}
	return r, d.end()
}

// AppendTaken appends a frame that makes the shim responsible for the command: hostd may
// forget it. Its Reply follows.
func AppendTaken(dst []byte, rev uint64) []byte {
	return AppendFrame(dst, TypeTaken, func(dst []byte) []byte { return putU64(dst, rev) })
}

// ParseTaken parses what AppendTaken wrote.
func ParseTaken(b []byte) (uint64, error) {
	d := dec{b: b}
	rev := d.u64()
	return rev, d.end()
}

// AppendEnded appends a frame that reports, after End, that every record is complete and no
// process of the sandbox runs.
func AppendEnded(dst []byte) []byte { return AppendFrame(dst, TypeEnded, nil) }
