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

// command is one that hostd gives for a process.
type command struct {
	token string
	rev   uint64
	size  int
	input bool
	do    func(*proc)
}

// command applies what hostd says to a process, unless it was applied before: each command
// is taken once.
func (s *Shim) command(err error, c *command) error {
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply(c)
	return nil
}

// apply is command with Shim.mu held.
func (s *Shim) apply(c *command) {
	p := s.procs[c.token]
	switch {
	case p == nil:
		s.refuse(c.rev, kind.NotFound, "the process has ended")
	case p.starting:
		p.postpone(c)
	case c.rev <= p.rev:
		s.again(c.rev)
	case uint64(p.spool.bytes) > s.limits.SpoolProcess+maxInput:
		s.refuse(c.rev, kind.Exhausted, "too many commands wait to be recorded")
	default:
		p.rev = c.rev
		c.do(p)
	}
}

const (
	commandCost = 256          // of a command that waits, besides its size
	notInput    = maxInput / 8 // is kept from input: what ends a process is to go through
)

// postpone has a command wait until it is known whether p starts. What waits is not taken,
// so that hostd says it again on its next connection.
func (p *proc) postpone(c *command) {
	s := p.s
	if n := len(p.waiting); n > 0 && c.rev <= p.waiting[n-1].rev {
		if _, waits := slices.BinarySearchFunc(p.waiting, c.rev, func(w *command, rev uint64) int { return cmp.Compare(w.rev, rev) }); !waits {
			s.again(c.rev) // there was no room for it
		}
		return
	}
	most := maxInput
	if c.input {
		most -= notInput
	}
	if p.waits+c.size+commandCost > most {
		s.refuse(c.rev, kind.Exhausted, "too many commands wait for the process to start")
		return
	}
	p.waits += c.size + commandCost
	p.waiting = append(p.waiting, c)
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
