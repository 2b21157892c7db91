package hostd

import (
	"sync"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// proc is a process whose record has not ended. The goroutine that runs begin, resume, move or
// endOrphan is the record's only writer.
type proc struct {
	h    *host
	sb   *hostSandbox // nil: its sandbox does not run here
	id   process.ID
	ref  events.Ref
	done chan struct{} // closed when the record has ended, or belongs to another writer
	wake chan struct{} // has a value when there is something to do

	unknown bool // the catalogue did not have it when the shim listed it

	// Of its goroutine.
	w        *events.Writer
	start    *events.Command // nil: found in the shim or the catalogue
	frame    []byte          // the Start for the shim
	admitted bool            // the start is counted by admit
	spec     process.Spec    // Env goes into the catalogue, never into the record
	hash     []byte
	sum      process.Summary
	rev      uint64 // of the catalogue's entry
	final    bool   // the catalogue's entry has the end
	// The record's end was not read yet; see assumeTail.
	assumed  bool
	usesTail bool // w continues from a tail that may be out of date; see useTail
	ending   bool // hostd itself ends the record; see end

	mu        sync.Mutex
	known     *wire.Process // as the shim listed it; nil: the shim does not have it
	taken     bool          // the shim has accepted its start
	track     *link.Track   // nil: events from the shim are not expected yet
	queue     []item
	heldBytes int              // link.Weight of events received and not stored
	lost      process.Exit     // with a Cause: nothing more will come from the shim, and the record ends with this
	stored    process.Seq      // the last event on record
	sent      bool             // the start was sent: commands may follow
	waiting   []events.Command // commands that wait for that
	closed    bool             // later commands are refused
	released  bool             // its starts need not be read again; written by its goroutine
	starts    []uint64         // commands that start it, until then
	answers   []answer
}

// item is an event to be stored, and the buffer that it refers to.
type item struct {
	event process.Event
	mem   []byte
}

// answer is a reply that is sent once an event is stored.
type answer struct {
	after process.Seq
	cmd   events.Command
	reply events.Reply
}

func (h *host) newProc(sb *hostSandbox, id process.ID) *proc {
	ref := events.Ref{Host: h.cfg.Name, ID: id}
	return &proc{
		h: h, sb: sb, id: id, ref: ref, w: h.log.Writer(ref, h.epoch),
		done: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

func (p *proc) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// maxHeld is how much of a sandbox's output may wait to be stored, as link.Weight counts: twice
// the window. A new connection may bring a full window before its shim has received the acks of
// the other processes.
const maxHeld = 2*wire.WindowConn + wire.MaxFrame

// take queues an event from the shim.
func (p *proc) take(m *link.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.lost.Cause != "" {
		p.h.pool.Put(m.Mem)
		return nil
	}
	if p.track == nil {
		return p.sb.hostile("unexpected event of %q", m.Token)
	}
	if err := p.track.Take(&m.Event); err != nil {
		return err
	}
	weight := link.Weight(&m.Event)
	p.heldBytes += weight
	if held := p.sb.flow.AddPending(weight); held > maxHeld {
		return p.sb.hostile("%d bytes of events wait to be stored, maximum %d", held, maxHeld)
	}
	p.queue = append(p.queue, item{event: m.Event, mem: m.Mem})
	p.poke()
	return nil
}

// lose ends the record with the given exit, unless the shim has reported another one: nothing
// more will come from it.
func (p *proc) lose(as process.Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost.Cause == "" {
		p.lost = as
	}
	p.poke()
}

func (p *proc) wasTaken() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken || p.known != nil
}

func (p *proc) setTaken() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = true
}

// reattach handles the shim's entry of p on a new connection; hostSandbox.mu is held.
func (p *proc) reattach(conn *link.Conn, hp wire.Process) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = &hp
	if p.track == nil {
		return nil // its goroutine reads where the record ends
	}
	if last := p.track.Last; hp.First > last+1 || hp.Last < last {
		return p.sb.hostile("%q has events %d to %d, received %d", hp.Token, hp.First, hp.Last, last)
	}
	conn.Send(p.appendPosition)
	return nil
}

// command sends a command to the process, after its start.
func (p *proc) command(c events.Command) {
	p.mu.Lock()
	switch {
	case p.closed:
		p.mu.Unlock()
		p.h.commands.refuse(c, noProcess(p.id))
		return
	case !p.sent:
		p.waiting = append(p.waiting, c)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	p.sb.session.command(c, p, frameOf(&c))
}

// setSent lets commands through, first the queued ones. The start, or the Resume that replaces
// it, was sent before.
func (p *proc) setSent() {
	for {
		p.mu.Lock()
		if len(p.waiting) == 0 {
			p.sent = true
			p.mu.Unlock()
			return
		}
		c := p.waiting[0]
		p.waiting = p.waiting[1:]
		p.mu.Unlock()
		p.sb.session.command(c, p, frameOf(&c))
	}
}

// replyAfter answers a command when the given event is stored.
func (p *proc) replyAfter(after process.Seq, c events.Command, r events.Reply) {
	p.mu.Lock()
	if p.stored < after && !p.closed {
		for len(p.answers) > 0 && p.answers[0].cmd.Expired(time.Now()) != nil {
			p.answers = p.answers[1:] // its sender has given up
		}
		p.answers = append(p.answers, answer{after: after, cmd: c, reply: r})
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	p.h.commands.answer(c, r)
}

// holdCursor keeps the cursor before another command that starts p, as long as p's record has
// only its claim: without a shim, only that command read again can end it.
func (p *proc) holdCursor(rev uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		p.h.commands.cursor.End(rev)
		return
	}
	p.starts = append(p.starts, rev)
}

// releaseCursor lets the cursor pass p's starts: the record has more than its claim.
func (p *proc) releaseCursor() {
	if p.released {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = true
	for _, rev := range p.starts {
		p.h.commands.cursor.End(rev)
	}
	p.starts = nil
}

// close ends the work on p and answers everything that waits for it.
func (p *proc) close() {
	p.releaseCursor()
	p.mu.Lock()
	p.closed = true
	if p.sb != nil {
		p.sb.flow.AddPending(-p.heldBytes)
		p.heldBytes = 0
	}
	queue, early, answers := p.queue, p.waiting, p.answers
	p.queue, p.waiting, p.answers = nil, nil, nil
	p.mu.Unlock()
	for _, it := range queue {
		p.h.pool.Put(it.mem)
	}
	for _, c := range early {
		p.h.commands.refuse(c, noProcess(p.id))
	}
	for _, a := range answers {
		a.reply.Err = kind.New(kind.NotFound, "command", a.cmd.ID, "the process has ended")
		p.h.commands.answer(a.cmd, a.reply)
	}
	close(p.done)
	if p.sb != nil {
		p.sb.session.remove(p)
	}
}
