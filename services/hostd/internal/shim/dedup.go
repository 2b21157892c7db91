package shim

import (
	"hash/maphash"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// keepTries is the number of input keys remembered for a process: how far back a client may
// repeat an input.
const keepTries = 256

// tries are the inputs with a key. A client that did not get the reply to an input sends it
// again, as another command with the same key. Shim.mu guards them.
type tries struct {
	seed maphash.Seed
	of   map[string]*try
	keys []string // oldest first
}

// try is the first command with a key, and its outcome.
type try struct {
	sum     uint64     // of its data
	over    bool       // it has a reply
	reply   wire.Reply // valid if over
	waiting []uint64   // revs of later commands with the key, until over
}

// tried reports whether f repeats an earlier input, and replies to it if so.
func (p *proc) tried(f *wire.Stdin) bool {
	before := p.tries.of[process.InputKey(f.Command)]
	switch {
	case before == nil:
		return false
	case before.sum != p.tries.sum(f):
		p.s.refuse(f.Rev, kind.Conflict, "the key was used with other input")
	case before.over:
		r := before.reply
		r.Rev = f.Rev
		p.s.reply(&r)
	default:
		before.waiting = append(before.waiting, f.Rev)
		p.s.taken(f.Rev)
	}
	return true
}

// note registers f and returns its entry, or nil if f has no key.
func (t *tries) note(f *wire.Stdin) *try {
	key := process.InputKey(f.Command)
	if key == "" {
		return nil
	}
	if t.of == nil {
		t.of, t.seed = make(map[string]*try), maphash.MakeSeed()
	}
	first := &try{sum: t.sum(f)}
	t.of[key] = first
	if t.keys = append(t.keys, key); len(t.keys) > keepTries {
		delete(t.of, t.keys[0])
		t.keys = t.keys[1:]
	}
	return first
}

// sum hashes f's data and EOF.
func (t *tries) sum(f *wire.Stdin) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	h.Write(f.Data) //nolint:errcheck // it never fails
	if f.EOF {
		h.WriteByte(1) //nolint:errcheck // it never fails
	}
	return h.Sum64()
}

// conclude replies to a command's input, and to the commands that repeated it meanwhile.
func (s *Shim) conclude(first *try, r *wire.Reply) {
	s.reply(r)
	if first == nil {
		return
	}
	first.over, first.reply = true, *r
	for _, rev := range first.waiting {
		again := *r
		again.Rev = rev
		s.reply(&again)
	}
	first.waiting = nil
}
