package procs

import (
	"cmp"
	"slices"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// command is a command of hostd for a process.
type command struct {
	token string
	rev   uint64
	size  int
	input bool
	do    func(*proc)
}

// Write writes input to a process.
func (t *Table) Write(f *wire.Stdin) {
	t.command(&command{token: f.Token, rev: f.Rev, size: len(f.Command) + len(f.Data), input: true, do: func(p *proc) { p.write(f) }})
}

// Signal sends a signal to a process.
func (t *Table) Signal(f *wire.Signal) {
	t.command(&command{token: f.Token, rev: f.Rev, size: len(f.Command), do: func(p *proc) { p.signal(f) }})
}

// Resize sets the size of a process's terminal.
func (t *Table) Resize(f *wire.Resize) {
	t.command(&command{token: f.Token, rev: f.Rev, do: func(p *proc) { p.resize(f) }})
}

// command applies a command to its process, unless it was applied before: each command is
// taken once.
func (t *Table) command(c *command) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.apply(c)
}

// apply is command with Table.mu held.
func (t *Table) apply(c *command) {
	p := t.procs[c.token]
	switch {
	case p == nil:
		t.replies.refuse(c.rev, kind.NotFound, "the process has ended")
	case p.starting:
		p.queueCommand(c)
	case c.rev <= p.rev:
		t.replies.again(c.rev)
	case p.rec.Exceeds(maxInput):
		t.replies.refuse(c.rev, kind.Exhausted, "too many commands wait to be recorded")
	default:
		p.rev = c.rev
		c.do(p)
	}
}

const (
	commandCost    = 256          // of a waiting command, besides its size
	controlReserve = maxInput / 8 // reserved for other commands: a signal that ends the process must get through
)

// commandQueue has the commands that wait for a start, in the order of their revs.
type commandQueue struct {
	commands []*command
	bytes    int
}

// queueCommand queues a command until it is known whether p starts. A queued command counts as
// not taken, so hostd repeats it on its next connection.
func (p *proc) queueCommand(c *command) {
	q, t := &p.queued, p.t
	if n := len(q.commands); n > 0 && c.rev <= q.commands[n-1].rev {
		if _, waits := slices.BinarySearchFunc(q.commands, c.rev, func(w *command, rev uint64) int { return cmp.Compare(w.rev, rev) }); !waits {
			t.replies.again(c.rev) // the queue had no space for it
		}
		return
	}
	most := maxInput
	if c.input {
		most -= controlReserve
	}
	if q.bytes+c.size+commandCost > most {
		t.replies.refuse(c.rev, kind.Exhausted, "too many commands wait for the process to start")
		return
	}
	q.bytes += c.size + commandCost
	q.commands = append(q.commands, c)
}
