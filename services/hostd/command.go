package hostd

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/cursor"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// commandQueue has the commands for a sandbox that its shim has not received.
type commandQueue struct {
	sb *hostSandbox

	queuedBytes atomic.Int64     // bytes of commands that the shim has not accepted yet; see admit
	mu          sync.Mutex       // held while a command is forwarded; taken before the session's
	forwarding  bool             // the shim's processes are known
	queue       []events.Command // commands that wait until forwarding
}

// commandReader reads the host's commands and replies to them.
type commandReader struct {
	h *host

	cursor *cursor.Cursor
}

// run reads the host's commands from rev on, until ctx ends.
func (r *commandReader) run(ctx context.Context, rev uint64) error {
	err := r.h.log.Commands(ctx, r.h.cfg.Name, rev, func(c events.Command) error {
		r.cursor.Begin(c.Rev)
		r.dispatch(c)
		return nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // ctx ended
	}
	return fmt.Errorf("commands: %w", err)
}

// dispatch handles or parks a command, without waiting.
func (r *commandReader) dispatch(c events.Command) {
	if drain, ok := c.Body.(events.Drain); ok {
		r.h.spawn("drain", func() error { return r.drain(c, drain.Drain) })
		return
	}
	if !r.h.sandboxes.park(c) {
		r.deliver(c)
	}
}

// deliver passes a command to its sandbox, or refuses it, without waiting.
func (r *commandReader) deliver(c events.Command) {
	sb := r.h.sandboxes.get(c.Process.Sandbox())
	if start, ok := c.Body.(events.Start); ok {
		r.begin(sb, c, start.Spec)
		return
	}
	if err := c.Expired(time.Now()); err != nil {
		r.refuse(c, err)
		return
	}
	if sb == nil {
		r.refuse(c, kind.New(kind.NotFound, "command", c.ID, "the sandbox does not run here"))
		return
	}
	if snap, ok := c.Body.(events.TakeSnapshot); ok {
		r.h.spawn("snapshot "+string(sb.id), func() error { return sb.snapshots.handle(r.h.runCtx, c, snap) })
		return
	}
	in, _ := c.Body.(events.Stdin)
	if err := sb.commands.admit(&c, len(in.Data)); err != nil {
		r.refuse(c, err)
		return
	}
	sb.commands.mu.Lock()
	defer sb.commands.mu.Unlock()
	if !sb.commands.forwarding {
		sb.commands.queue = append(sb.commands.queue, c)
		return
	}
	sb.commands.forward(c)
}

const (
	// maxQueuedBytes is how many bytes of commands may wait for a shim to accept them, as much as
	// five hundred clients send at a time. A shim that accepts none would else fill the host's
	// memory.
	maxQueuedBytes = 64 << 20
	// commandCost is the size of a command besides its data.
	commandCost = 1 << 10
	// maxPending is how many commands may wait for the shim's reply, as input does for a process
	// that does not read, until their senders give up.
	maxPending = 1 << 16
	// inputPart keeps an eighth of both from input: signals must get through.
	inputPart = 8
)

// admit accounts for a command with data bytes of payload until the shim has accepted it, or
// returns why it is refused.
func (q *commandQueue) admit(c *events.Command, data int) error {
	if err := q.sb.pausing.usable(); err != nil {
		return err
	}
	size, waiting, pending := int64(commandCost+data), int64(maxQueuedBytes), maxPending
	if _, input := c.Body.(events.Stdin); input {
		waiting, pending = waiting-waiting/inputPart, pending-pending/inputPart
	}
	if q.sb.session.countPending(pending) >= pending || q.queuedBytes.Load()+size > waiting {
		return kind.New(kind.Exhausted, "command", c.ID, "too many commands wait for the sandbox")
	}
	q.sb.h.commands.cursor.Charge(c.Rev, &q.queuedBytes, size)
	return nil
}

// countPending returns how many commands wait for a reply. At the limit it drops, once per
// second, those whose senders have given up and that need not be sent again.
func (ss *session) countPending(most int) int {
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

// forward passes a command to its process; hostSandbox.order is held.
func (q *commandQueue) forward(c events.Command) {
	q.sb.session.mu.Lock()
	p := q.sb.session.procs[c.Process.Token()]
	q.sb.session.mu.Unlock()
	if p == nil {
		q.sb.h.commands.refuse(c, noProcess(c.Process))
		return
	}
	if _, ok := c.Body.(events.Stdin); ok {
		q.sb.cpu.Requests.Add(1)
	}
	p.command(c)
}

// forwardQueued forwards the commands that arrived before the shim's processes were known, in
// their order.
func (q *commandQueue) forwardQueued() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.queue {
		q.forward(c)
	}
	q.queue, q.forwarding = nil, true
}

func noProcess(id process.ID) error {
	return kind.New(kind.NotFound, "command", string(id), "the process has ended")
}

// begin starts a process. Another command that starts the same process is ignored.
func (r *commandReader) begin(sb *hostSandbox, c events.Command, spec process.Spec) {
	p := r.h.newProc(sb, c.Process)
	p.start, p.spec, p.hash, p.replies.starts = &c, spec, spec.Hash(), []uint64{c.Rev}
	p.frame = wire.AppendStart(nil, &wire.Start{Rev: c.Rev, Token: c.Process.Token(), Spec: process.AppendSpec(nil, &spec)})
	if sb != nil {
		token := c.Process.Token()
		sb.session.mu.Lock()
		if sb.session.closed {
			p.sb = nil
		} else if known := sb.session.procs[token]; known != nil {
			sb.session.mu.Unlock()
			known.replies.holdCursor(c.Rev)
			return
		} else {
			sb.session.procs[token] = p
			sb.cpu.Requests.Add(1)
		}
		sb.session.mu.Unlock()
	}
	r.h.spawn("process "+string(p.id), func() error { return p.begin(r.h.runCtx) })
}

// frameOf returns a command's frame for the shim.
func frameOf(c *events.Command) []byte {
	token := c.Process.Token()
	switch body := c.Body.(type) {
	case events.Stdin:
		return wire.AppendStdin(nil, &wire.Stdin{Rev: c.Rev, Token: token, Command: c.ID, Data: body.Data, EOF: body.EOF})
	case events.Signal:
		return wire.AppendSignal(nil, &wire.Signal{Rev: c.Rev, Token: token, Command: c.ID, Signal: body.Signal})
	case events.Resize:
		return wire.AppendResize(nil, &wire.Resize{Rev: c.Rev, Token: token, Cols: body.Size.Cols, Rows: body.Size.Rows})
	case events.Start, events.TakeSnapshot, events.Drain: // they have frames of their own, or none
	}
	return nil
}

// answer replies to a command's sender.
func (r *commandReader) answer(c events.Command, reply events.Reply) {
	r.h.log.Reply(c, reply)
	r.h.fault("replied") //nolint:errcheck // it ends the run
}

// refuse completes a command and replies with an error.
func (r *commandReader) refuse(c events.Command, err error) {
	r.cursor.End(c.Rev)
	r.answer(c, events.Reply{Err: err})
}
