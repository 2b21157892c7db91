package shim

import (
	"cmp"
	"slices"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// keepOutcomes is how many answers are kept for commands that come again.
const keepOutcomes = 256

// outcomes are the answers to the last commands, so that one that comes again
// after hostd restarted gets the answer it got.
type outcomes struct {
	ring [keepOutcomes]wire.Reply
	next int
}

func (o *outcomes) add(r wire.Reply) {
	o.ring[o.next] = r
	o.next = (o.next + 1) % keepOutcomes
}

func (o *outcomes) find(rev uint64) (wire.Reply, bool) {
	for i := range o.ring {
		if o.ring[i].Rev == rev {
			return o.ring[i], true
		}
	}
	return wire.Reply{}, false
}

// command applies f, which takes size bytes, to a process, unless it was applied before:
// each command is taken once.
func (s *Shim) command(err error, token string, rev uint64, size int, f func(*proc)) error {
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply(token, rev, size, f)
	return nil
}

const commandCost = 256 // of a command that waits, besides its size

// apply is command with Shim.mu held.
func (s *Shim) apply(token string, rev uint64, size int, f func(*proc)) {
	p := s.procs[token]
	switch {
	case p == nil:
		s.refuse(rev, kind.NotFound, "the process has ended")
	case p.starting:
		p.postpone(rev, size, func() { s.apply(token, rev, size, f) })
	case rev <= p.rev:
		s.again(rev)
	case uint64(p.spool.bytes) > s.limits.SpoolProcess+maxInput:
		s.refuse(rev, kind.Exhausted, "too many commands wait to be recorded")
	default:
		p.rev = rev
		f(p)
	}
}

// waiting is a command for a process that is starting.
type waiting struct {
	rev uint64
	do  func()
}

// postpone has a command wait until it is known whether p starts. What waits is not taken,
// so that hostd says it again on its next connection.
func (p *proc) postpone(rev uint64, size int, do func()) {
	s := p.s
	if n := len(p.waiting); n > 0 && rev <= p.waiting[n-1].rev {
		if _, waits := slices.BinarySearchFunc(p.waiting, rev, func(w waiting, rev uint64) int { return cmp.Compare(w.rev, rev) }); !waits {
			s.again(rev) // there was no room for it
		}
		return
	}
	if p.waits+size+commandCost > maxInput {
		s.refuse(rev, kind.Exhausted, "too many commands wait for the process to start")
		return
	}
	p.waits += size + commandCost
	p.waiting = append(p.waiting, waiting{rev: rev, do: do})
}

// again answers a command that was taken before.
func (s *Shim) again(rev uint64) {
	if r, ok := s.outcomes.find(rev); ok {
		s.post(&r)
		return
	}
	s.taken(rev)
}

// reply answers a command.
func (s *Shim) reply(r *wire.Reply) {
	s.outcomes.add(*r)
	s.post(r)
}

func (s *Shim) post(r *wire.Reply) {
	if c := s.session; c != nil {
		c.send(func(dst []byte) []byte { return wire.AppendReply(dst, r) })
	}
}

func (s *Shim) refuse(rev uint64, k kind.Kind, text string) {
	s.reply(&wire.Reply{Rev: rev, Kind: k, Error: text})
}

// taken tells hostd that a command need not be sent again.
func (s *Shim) taken(rev uint64) {
	if c := s.session; c != nil {
		c.send(func(dst []byte) []byte { return wire.AppendTaken(dst, rev) })
	}
}
