package shim

import (
	"cmp"
	"slices"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// keepOutcomes is the number of replies kept for repeated commands.
const keepOutcomes = 256

// outcomes holds the replies to the last commands, so that a command repeated after a
// restart of hostd gets the same reply.
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

// command is a command of hostd for a process.
type command struct {
	token string
	rev   uint64
	size  int
	input bool
	do    func(*proc)
}

// command applies a command to its process, unless it was applied before: each command is
// taken once.
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
		p.queueCommand(c)
	case c.rev <= p.rev:
		s.replyAgain(c.rev)
	case uint64(p.spool.bytes) > s.limits.SpoolProcess+maxInput:
		s.refuse(c.rev, kind.Exhausted, "too many commands wait to be recorded")
	default:
		p.rev = c.rev
		c.do(p)
	}
}

const (
	commandCost    = 256          // of a waiting command, besides its size
	controlReserve = maxInput / 8 // reserved for other commands: a signal that ends the process must get through
)

// queueCommand queues a command until it is known whether p starts. A queued command counts as
// not taken, so hostd repeats it on its next connection.
func (p *proc) queueCommand(c *command) {
	s := p.s
	if n := len(p.pending); n > 0 && c.rev <= p.pending[n-1].rev {
		if _, waits := slices.BinarySearchFunc(p.pending, c.rev, func(w *command, rev uint64) int { return cmp.Compare(w.rev, rev) }); !waits {
			s.replyAgain(c.rev) // the queue had no space for it
		}
		return
	}
	most := maxInput
	if c.input {
		most -= controlReserve
	}
	if p.pendingBytes+c.size+commandCost > most {
		s.refuse(c.rev, kind.Exhausted, "too many commands wait for the process to start")
		return
	}
	p.pendingBytes += c.size + commandCost
	p.pending = append(p.pending, c)
}

// replyAgain replies to a command that was taken before.
func (s *Shim) replyAgain(rev uint64) {
	if r, ok := s.outcomes.find(rev); ok {
		s.post(&r)
		return
	}
	s.taken(rev)
}

// reply replies to a command.
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

// taken reports to hostd that a command need not be sent again.
func (s *Shim) taken(rev uint64) {
	if c := s.session; c != nil {
		c.send(func(dst []byte) []byte { return wire.AppendTaken(dst, rev) })
	}
}
