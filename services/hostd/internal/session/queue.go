package session

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

const (
	// MaxQueuedBytes is how many bytes of commands may wait for a shim to accept them, as much as
	// five hundred clients send at a time. A shim that accepts none would else fill the host's
	// memory.
	MaxQueuedBytes = 64 << 20
	// commandCost is the size of a command besides its data.
	commandCost = 1 << 10
	// maxPending is how many commands may wait for the shim's reply, as input does for a process
	// that does not read, until their senders give up.
	maxPending = 1 << 16
	// inputPart keeps an eighth of both from input: signals must get through.
	inputPart = 8
)

// queue has the commands for a sandbox that cannot be sent yet.
type queue struct {
	ss *Session

	bytes atomic.Int64 // bytes of commands that the shim has not accepted yet; see admit

	mu      sync.Mutex                   // held while a command is sent; taken before the session's
	open    bool                         // the shim's processes are known
	started map[string]*proc             // processes whose start was sent, by token: commands may follow
	waiting map[string][]command.Command // commands that wait for both, in their order, by their process's token
}

// Deliver sends a command to its process, or queues it until the process can receive it. It
// refuses commands beyond the limits.
func (ss *Session) Deliver(c command.Command) {
	in, _ := c.Body.(command.Stdin)
	if err := ss.queue.admit(&c, len(in.Data)); err != nil {
		ss.h.cfg.Commands.Refuse(c, err)
		return
	}
	ss.queue.put(c)
}

// admit accounts for a command with data bytes of payload until the shim has accepted it, or
// returns why it is refused.
func (q *queue) admit(c *command.Command, data int) error {
	if err := q.ss.cfg.Usable(); err != nil {
		return err
	}
	size, waiting, pending := int64(commandCost+data), int64(MaxQueuedBytes), maxPending
	if _, input := c.Body.(command.Stdin); input {
		waiting, pending = waiting-waiting/inputPart, pending-pending/inputPart
	}
	if q.ss.countPending(pending) >= pending || q.bytes.Load()+size > waiting {
		return kind.New(kind.Exhausted, "command", c.ID, "too many commands wait for the sandbox")
	}
	q.ss.h.cfg.Commands.Charge(c.Rev, &q.bytes, size)
	return nil
}

func (q *queue) put(c command.Command) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.open {
		token := c.Process.Token()
		q.waiting[token] = append(q.waiting[token], c)
		return
	}
	q.forward(c)
}

// forward sends a command to its process, after its start; mu is held.
func (q *queue) forward(c command.Command) {
	token := c.Process.Token()
	p := q.ss.proc(token)
	if p == nil {
		q.ss.h.cfg.Commands.Refuse(c, noProcess(c.Process))
		return
	}
	if _, ok := c.Body.(command.Stdin); ok {
		q.ss.cfg.Requests.Add(1)
	}
	switch {
	case p.isClosed():
		q.ss.h.cfg.Commands.Refuse(c, noProcess(p.id))
	case q.started[token] != p:
		q.waiting[token] = append(q.waiting[token], c)
	default:
		q.ss.command(c, p, frameOf(&c))
	}
}

// openUp forwards the commands that arrived before the shim's processes were known, in their
// order.
func (q *queue) openUp() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open {
		return
	}
	var all []command.Command
	for _, some := range q.waiting {
		all = append(all, some...)
	}
	clear(q.waiting)
	slices.SortFunc(all, func(a, b command.Command) int { return cmp.Compare(a.Rev, b.Rev) })
	q.open = true
	for _, c := range all {
		q.forward(c)
	}
}

// start lets the commands for a process through, first the waiting ones. Its start, or the Resume
// that replaces it, was sent before.
func (q *queue) start(p *proc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	token := p.id.Token()
	q.started[token] = p
	if !q.open {
		return
	}
	for _, c := range q.waiting[token] {
		q.ss.command(c, p, frameOf(&c))
	}
	delete(q.waiting, token)
}

// drop refuses the commands that wait for a process that is closed.
func (q *queue) drop(p *proc) {
	q.mu.Lock()
	token := p.id.Token()
	if q.started[token] == p {
		delete(q.started, token)
	}
	var late []command.Command
	if q.open { // otherwise they may be for a later attempt to start it
		late = q.waiting[token]
		delete(q.waiting, token)
	}
	q.mu.Unlock()
	for _, c := range late {
		q.ss.h.cfg.Commands.Refuse(c, noProcess(p.id))
	}
}

// countPending returns how many commands wait for a reply. At the limit it drops, once per
// second, those whose senders have given up and that need not be sent again.
func (ss *Session) countPending(most int) int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	now := time.Now()
	if len(ss.pending) < most || now.Sub(ss.lastSweep) < time.Second {
		return len(ss.pending)
	}
	ss.lastSweep = now
	for rev, p := range ss.pending {
		if p.taken && p.cmd.Expired(now) != nil {
			delete(ss.pending, rev)
		}
	}
	return len(ss.pending)
}

func noProcess(id process.ID) error {
	return kind.New(kind.NotFound, "command", string(id), "the process has ended")
}

// frameOf returns a command's frame for the shim.
func frameOf(c *command.Command) []byte {
	token := c.Process.Token()
	switch body := c.Body.(type) {
	case command.Stdin:
		return wire.AppendStdin(nil, &wire.Stdin{Rev: c.Rev, Token: token, Command: c.ID, Data: body.Data, EOF: body.EOF})
	case command.Signal:
		return wire.AppendSignal(nil, &wire.Signal{Rev: c.Rev, Token: token, Command: c.ID, Signal: body.Signal})
	case command.Resize:
		return wire.AppendResize(nil, &wire.Resize{Rev: c.Rev, Token: token, Cols: body.Size.Cols, Rows: body.Size.Rows})
	case command.Start, command.TakeSnapshot, command.Drain: // they have frames of their own, or none
	}
	return nil
}
