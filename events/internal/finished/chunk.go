package finished

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/process"
)

// chunk holds the processes that ended one after another. Its bytes are only appended to, so that
// what was read from them once remains valid.
type chunk struct {
	keys  []key
	data  []byte
	base  uint64            // rev of the first process
	live  int               // processes that were not removed
	texts map[string]uint32 // texts in data, by content; nil once the chunk is full

	stored *Chunk // the chunk as it is stored; nil until it was asked for
}

// key is the part of a process by which it is found and ordered. Offsets are those of texts and
// fields in the chunk's data.
type key struct {
	at      int64 // process.Summary.ListedAt
	hi, lo  uint64
	rev     uint32 // minus the chunk's base
	pid     uint32
	tenant  uint32
	sandbox uint32
	rest    uint32
}

// MaxSlots is the maximum number of processes of a chunk.
const MaxSlots = 1 << slotBits

// Limits of a chunk. The last process of a chunk may exceed the bytes by the limit of a command.
const (
	slotBits  = 12
	maxBytes  = 512 << 10
	sharedLen = 1 << 10 // longest text that is looked for among the earlier ones
)

// Flags of a process.
const (
	hasStarted = 1 << iota
	hasEnded
	isKilled
	hasTrace
)

// follows reports whether the chunk can contain a process with stream sequence rev.
func (c *chunk) follows(rev uint64) bool { return rev >= c.base && rev-c.base <= math.MaxUint32 }

// seal releases the memory that only a chunk that grows needs.
func (c *chunk) seal() {
	c.texts = nil
	c.keys = append(make([]key, 0, len(c.keys)), c.keys...)
	c.data = append(make([]byte, 0, len(c.data)), c.data...)
}

// add appends a process.
func (c *chunk) add(s *process.Summary, id ulid.ULID, rev uint64) {
	k := key{
		at: s.ListedAt(), hi: binary.BigEndian.Uint64(id[:8]), lo: binary.BigEndian.Uint64(id[8:]),
		rev: uint32(rev - c.base), pid: s.PID,
		tenant: c.text([]byte(s.Tenant)), sandbox: c.text([]byte(s.ID.Sandbox())),
	}
	untraced := s.Spec // equal commands of different traces are stored once
	untraced.Trace = nil
	host, spec := c.text([]byte(s.Host)), c.text(process.AppendSpec(nil, &untraced))
	exit := c.text(process.AppendExit(nil, s.Exit))
	k.rest = uint32(len(c.data))
	var flags byte
	if !s.Started.IsZero() {
		flags |= hasStarted
	}
	if !s.Ended.IsZero() {
		flags |= hasEnded
	}
	if s.Killed {
		flags |= isKilled
	}
	if s.Spec.Trace != nil {
		flags |= hasTrace
	}
	c.data = append(c.data, flags)
	if flags&hasEnded != 0 {
		c.data = binary.AppendVarint(c.data, s.Ended.UnixNano()-k.at)
	}
	for _, n := range []uint64{uint64(host), uint64(spec), uint64(exit), s.Epoch, s.Last} {
		c.data = binary.AppendUvarint(c.data, n)
	}
	if t := s.Spec.Trace; t != nil {
		b := process.AppendTrace(nil, t)
		c.data = append(binary.AppendUvarint(c.data, uint64(len(b))), b...)
	}
	c.keys = append(c.keys, k)
	c.live++
}

// text returns the offset of a text, which it appends if the chunk does not have it.
func (c *chunk) text(b []byte) uint32 {
	if len(b) <= sharedLen {
		if at, ok := c.texts[string(b)]; ok {
			return at
		}
	}
	at := uint32(len(c.data))
	c.data = append(binary.AppendUvarint(c.data, uint64(len(b))), b...)
	if len(b) <= sharedLen {
		if c.texts == nil {
			c.texts = make(map[string]uint32)
		}
		c.texts[string(b)] = at
	}
	return at
}

// textAt returns the text at an offset of a chunk's data.
func textAt(data []byte, at uint32) []byte {
	n, width := binary.Uvarint(data[at:])
	from := uint64(at) + uint64(width)
	return data[from : from+n]
}

// rest is the part of a process that its key does not have.
type rest struct {
	flags            byte
	ended            time.Time
	host, spec, exit uint32
	epoch            uint64
	last             process.Seq
	trace            []byte // empty: none
}

func restOf(k *key, data []byte) rest {
	b := data[k.rest:]
	r := rest{flags: b[0]}
	b = b[1:]
	if r.flags&hasEnded != 0 {
		after, n := binary.Varint(b)
		r.ended, b = time.Unix(0, k.at+after), b[n:]
	}
	var u [5]uint64
	for i := range u {
		v, n := binary.Uvarint(b)
		u[i], b = v, b[n:]
	}
	r.host, r.spec, r.exit, r.epoch, r.last = uint32(u[0]), uint32(u[1]), uint32(u[2]), u[3], u[4]
	if r.flags&hasTrace != 0 {
		r.trace = textAt(b, 0)
	}
	return r
}
