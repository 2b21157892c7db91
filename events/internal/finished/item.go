package finished

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// Item is a process in a set.
type Item struct {
	key
	base uint64
	data []byte // of its chunk
}

// Rev returns the stream sequence of the process's entry.
func (it *Item) Rev() uint64 { return it.base + uint64(it.rev) }

// Sandbox returns the sandbox of the process.
func (it *Item) Sandbox() sandbox.ID { return sandbox.ID(textAt(it.data, it.key.sandbox)) }

// Cursor returns the position of the process in lists.
func (it *Item) Cursor() process.ListCursor {
	return process.ListCursor{At: it.at, ID: it.id()}
}

func (it *Item) id() process.ID {
	var u ulid.ULID
	binary.BigEndian.PutUint64(u[:8], it.hi)
	binary.BigEndian.PutUint64(u[8:], it.lo)
	text := make([]byte, ulid.EncodedSize, ulid.EncodedSize+1+64)
	if err := u.MarshalTextTo(text); err != nil {
		panic(fmt.Sprintf("encode a process id: %v", err)) // the length is right
	}
	for i, c := range text {
		if c >= 'A' {
			text[i] = c + 'a' - 'A'
		}
	}
	return process.ID(append(append(text, '-'), textAt(it.data, it.key.sandbox)...))
}

// Decoder decodes items. Those that it decodes one after another share equal values. It belongs
// to one goroutine; the zero value is ready to use.
type Decoder struct {
	data  []byte                   // of the chunk that the tables are of
	texts map[uint32]string        // by offset
	specs map[uint32]process.Spec  // likewise
	exits map[uint32]*process.Exit // likewise
}

// Summary decodes an item.
func (d *Decoder) Summary(it *Item) (s process.Summary) {
	d.Decode(it, &s)
	return s
}

// Decode is Summary into s.
func (d *Decoder) Decode(it *Item, s *process.Summary) {
	if len(d.data) == 0 || &d.data[0] != &it.data[0] {
		*d = Decoder{
			data: it.data, texts: make(map[uint32]string),
			specs: make(map[uint32]process.Spec), exits: make(map[uint32]*process.Exit),
		}
	}
	r := restOf(&it.key, it.data)
	*s = process.Summary{
		ID: it.id(), Tenant: d.text(it, it.tenant), Host: d.text(it, r.host), Epoch: r.epoch, Spec: d.spec(it, r.spec),
		PID: it.pid, Ended: r.ended, Killed: r.flags&isKilled != 0, Exit: d.exit(it, r.exit), Last: r.last,
	}
	if r.flags&hasStarted != 0 {
		s.Started = time.Unix(0, it.at)
	}
	if r.flags&hasTrace != 0 {
		s.Spec.Trace, _ = process.ParseTrace(r.trace) // AppendTrace wrote it
	}
}

func (d *Decoder) text(it *Item, at uint32) string {
	s, ok := d.texts[at]
	if !ok {
		s = string(textAt(it.data, at))
		d.texts[at] = s
	}
	return s
}

func (d *Decoder) spec(it *Item, at uint32) process.Spec {
	s, ok := d.specs[at]
	if !ok {
		s, _ = process.ParseSpec(textAt(it.data, at)) // AppendSpec wrote it
		d.specs[at] = s
	}
	return s
}

func (d *Decoder) exit(it *Item, at uint32) *process.Exit {
	x, ok := d.exits[at]
	if !ok {
		parsed, _ := process.ParseExit(textAt(it.data, at)) // AppendExit wrote it
		x = &parsed
		d.exits[at] = x
	}
	return x
}
