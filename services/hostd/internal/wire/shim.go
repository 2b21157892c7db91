package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
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
		dst = putVersion(dst)
		for i := range h.Processes {
			dst = field.PutMessage(dst, 1, h.Processes[i].append)
		}
		return dst
	})
}

// ParseHello parses what AppendHello wrote. ErrMalformed also reports another protocol.
func ParseHello(b []byte) (Hello, error) {
	b, err := cutVersion(b)
	if err != nil {
		return Hello{}, err
	}
	var h Hello
	err = field.Each(b, func(num protowire.Number, _ uint64, v []byte) error {
		if num != 1 {
			return nil
		}
		p, err := parseProcess(v)
		h.Processes = append(h.Processes, p)
		return err
	})
	if err != nil {
		return Hello{}, ErrMalformed
	}
	return h, nil
}

func (p *Process) append(dst []byte) []byte {
	dst = putToken(dst, p.Token)
	dst = field.AppendUint(dst, 2, uint64(p.PID))
	dst = field.AppendUint(dst, 3, p.First)
	dst = field.AppendUint(dst, 4, p.Last)
	return field.AppendUint(dst, 5, p.Rev)
}

func parseProcess(b []byte) (Process, error) {
	var p Process
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) (err error) {
		switch num {
		case fieldToken:
			p.Token, err = tokenField(v)
		case 2:
			p.PID, err = number[uint32](u)
		case 3:
			p.First = u
		case 4:
			p.Last = u
		case 5:
			p.Rev = u
		}
		return err
	})
	return p, parsed(p.Token, err)
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
		return field.AppendBytes(field.AppendUint(putToken(dst, m.Token), 2, m.After), 3, m.Spec)
	})
}

// ParseMoved parses what AppendMoved wrote; Spec shares b's memory.
func ParseMoved(b []byte) (Moved, error) {
	var m Moved
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) (err error) {
		switch num {
		case fieldToken:
			m.Token, err = tokenField(v)
		case 2:
			m.After = u
		case 3:
			m.Spec, err = payload(v, MaxFrame)
		}
		return err
	})
	return m, parsed(m.Token, err)
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
		dst = field.AppendUint(dst, 1, r.Rev)
		dst = field.AppendUint(dst, 2, r.After)
		dst = field.AppendUint(dst, 3, uint64(r.Kind))
		dst = field.AppendString(dst, 4, r.Error)
		return field.AppendUint(dst, 5, r.Offset)
	})
}

// ParseReply parses what AppendReply wrote.
func ParseReply(b []byte) (Reply, error) {
	var r Reply
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) (err error) {
		switch num {
		case 1:
			r.Rev = u
		case 2:
			r.After = u
		case 3:
			var k uint32
			k, err = number[uint32](u)
			r.Kind = kind.Kind(k)
		case 4:
			r.Error, err = text(v)
		case 5:
			r.Offset = u
		}
		return err
	})
	if err != nil {
		return Reply{}, ErrMalformed
	}
	return r, nil
}

// AppendTaken appends a frame that makes the shim responsible for the command: hostd may
// forget it. Its Reply follows.
func AppendTaken(dst []byte, rev uint64) []byte {
	return AppendFrame(dst, TypeTaken, func(dst []byte) []byte { return appendNumber(dst, rev) })
}

// ParseTaken parses what AppendTaken wrote.
func ParseTaken(b []byte) (uint64, error) { return parseNumber(b) }

// AppendEnded appends a frame that reports, after End, that every record is complete and no
// process of the sandbox runs.
func AppendEnded(dst []byte) []byte { return AppendFrame(dst, TypeEnded, nil) }
