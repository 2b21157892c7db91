package procs

import (
	"hash/maphash"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// maxInputKeys is the number of input keys remembered for a process: how far back a client may
// repeat an input.
const maxInputKeys = 256

// inputDedup has the inputs with a key. A client that did not get the reply to an input sends it
// again, as another command with the same key. Table.mu guards them.
type inputDedup struct {
	seed  maphash.Seed
	byKey map[string]*inputAttempt
	keys  []string // oldest first
}

// inputAttempt is the first command with a key, and its outcome.
type inputAttempt struct {
	sum     uint64     // of its data
	done    bool       // it has a reply
	reply   wire.Reply // valid if done
	waiting []uint64   // revs of later commands with the key, until done
}

// isDuplicate reports whether f repeats an earlier input, and replies to it if so.
func (p *proc) isDuplicate(f *wire.Stdin) bool {
	before := p.dedup.byKey[process.InputKey(f.Command)]
	switch {
	case before == nil:
		return false
	case before.sum != p.dedup.sum(f):
		p.t.replies.refuse(f.Rev, kind.Conflict, "the key was used with other input")
	case before.done:
		r := before.reply
		r.Rev = f.Rev
		p.t.replies.reply(&r)
	default:
		before.waiting = append(before.waiting, f.Rev)
		p.t.replies.taken(f.Rev)
	}
	return true
}

// register registers f and returns its entry, or nil if f has no key.
func (d *inputDedup) register(f *wire.Stdin) *inputAttempt {
	key := process.InputKey(f.Command)
	if key == "" {
		return nil
	}
	if d.byKey == nil {
		d.byKey, d.seed = make(map[string]*inputAttempt), maphash.MakeSeed()
	}
	first := &inputAttempt{sum: d.sum(f)}
	d.byKey[key] = first
	if d.keys = append(d.keys, key); len(d.keys) > maxInputKeys {
		delete(d.byKey, d.keys[0])
		d.keys = d.keys[1:]
	}
	return first
}

// sum hashes f's data and EOF.
func (d *inputDedup) sum(f *wire.Stdin) uint64 {
	var h maphash.Hash
	h.SetSeed(d.seed)
	h.Write(f.Data)
	if f.EOF {
		h.WriteByte(1)
	}
	return h.Sum64()
}

// input replies to a command's input, and to the commands that repeated it meanwhile.
func (r *replies) input(first *inputAttempt, out *wire.Reply) {
	r.reply(out)
	r.repeat(first, out)
}

// typed is input for what was typed at a terminal: the reply waits a moment for the echo.
func (r *replies) typed(first *inputAttempt, out *wire.Reply) {
	r.sent.add(*out)
	r.hostd.SendSoon(func(dst []byte) []byte { return wire.AppendReply(dst, out) })
	r.repeat(first, out)
}

// repeat replies to the commands that repeated an input.
func (r *replies) repeat(first *inputAttempt, out *wire.Reply) {
	if first == nil {
		return
	}
	first.done, first.reply = true, *out
	for _, rev := range first.waiting {
		again := *out
		again.Rev = rev
		r.reply(&again)
	}
	first.waiting = nil
}
