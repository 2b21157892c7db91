package shim

import (
	"hash/maphash"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// keepTries is how many keys of input are remembered for a process, and so how
// far back a client may try again.
const keepTries = 256

// tries are the inputs that may be tried again: a client that does not know what
// became of one sends it anew, as another command with the same key. Shim.mu
// guards them.
type tries struct {
	seed maphash.Seed
	of   map[string]*try
	keys []string // oldest first
}

// try is what became of the first command with a key.
type try struct {
	sum     uint64 // of its data
	over    bool
	reply   wire.Reply // counts if over
	waiting []uint64   // later ones, until it is over
}

// tried reports whether f's input was tried before, and answers it then.
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

// note gives where the answer to f is to be noted: nil if f has no key.
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

func (t *tries) sum(f *wire.Stdin) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	h.Write(f.Data) //nolint:errcheck // it never fails
	if f.EOF {
		h.WriteByte(1) //nolint:errcheck // it never fails
	}
	return h.Sum64()
}

// conclude answers a command's input, and all that were sent because its answer
// was not heard.
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
