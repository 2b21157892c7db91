package session

import (
	"sync"
	"time"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// proc is a process whose record has not ended. The goroutine that runs begin, resume, move or
// endOrphan is the record's only writer.
type proc struct {
	h    *Host
	ss   *Session // nil: its sandbox does not run here
	id   process.ID
	ref  record.Ref
	done chan struct{} // closed when the record has ended, or belongs to another writer
	wake chan struct{} // has a value when there is something to do

	unknown bool // the catalog did not have it when the shim listed it

	// Of its goroutine.
	w        *record.Writer
	start    *command.Command // nil: found in the shim or the catalog
	frame    startFrame
	admitted bool         // the start is counted by admit
	spec     process.Spec // its environment is sealed in the catalog, and never in the record
	hash     []byte
	// The record's end was not read yet; see assumeTail.
	assumed  bool
	usesTail bool // w continues from a tail that may be out of date; see useTail
	ending   bool // hostd itself ends the record; see end

	mu     sync.Mutex
	known  *wire.Process // as the shim listed it; nil: the shim does not have it
	taken  bool          // the shim has accepted its start
	lost   process.Exit  // with a Cause: nothing more will come from the shim, and the record ends with this
	stored process.Seq   // the last event on record
	closed bool          // later commands are refused

	entry   catalogEntry
	inbox   inbox
	replies replies
}

// startFrame is the Start for the shim.
type startFrame struct {
	bytes []byte
	err   error // why the environment in the command cannot be opened
}

// item is an event to be stored, and the buffer that it refers to.
type item struct {
	event process.Event
	mem   []byte
}

// answer is a reply that is sent once an event is stored.
type answer struct {
	after process.Seq
	cmd   command.Command
	reply command.Reply
}

// inbox has the events of a process that are not stored yet. The process's mutex guards it.
type inbox struct {
	p *proc

	track     *link.Track // nil: events from the shim are not expected yet
	queue     []item
	heldBytes int // link.Weight of events received and not stored
}

// replies has the replies that wait for events of a process, and its starts. The process's mutex guards it.
type replies struct {
	p *proc

	released bool     // its starts need not be read again; written by its goroutine
	starts   []uint64 // commands that start it, until then
	answers  []answer
}

func (h *Host) newProc(ss *Session, id process.ID) *proc {
	ref := record.Ref{Host: h.cfg.Name, ID: id}
	p := &proc{
		h: h, ss: ss, id: id, ref: ref, w: h.cfg.Log.Writer(ref, h.cfg.Epoch),
		done: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	p.assemble()
	return p
}

// assemble makes the parts of the process.
func (p *proc) assemble() { p.entry.p, p.inbox.p, p.replies.p = p, p, p }

func (p *proc) poke() { waiting.Notify(p.wake) }

// maxHeld is how much of a sandbox's output may wait to be stored, as link.Weight counts: twice
// the window. A new connection may bring a full window before its shim has received the acks of
// the other processes.
const maxHeld = 2*wire.WindowConn + wire.MaxFrame

// take queues an event from the shim.
func (in *inbox) take(m *link.Message) error {
	in.p.mu.Lock()
	defer in.p.mu.Unlock()
	if in.p.closed || in.p.lost.Cause != "" {
		in.p.h.pool.Put(m.Mem)
		return nil
	}
	if in.track == nil {
		return hostile("unexpected event of %q", m.Token)
	}
	if err := in.track.Take(&m.Event); err != nil {
		return err
	}
	weight := link.Weight(&m.Event)
	in.heldBytes += weight
	if held := in.p.ss.flow.AddPending(weight); held > maxHeld {
		return hostile("%d bytes of events wait to be stored, maximum %d", held, maxHeld)
	}
	in.queue = append(in.queue, item{event: m.Event, mem: m.Mem})
	in.p.poke()
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

// reattach handles the shim's entry of p on a new connection; the mutex of the session is held.
func (p *proc) reattach(conn *link.Conn, hp wire.Process) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = &hp
	if p.inbox.track == nil {
		return nil // its goroutine reads where the record ends
	}
	if last := p.inbox.track.Last; hp.First > last+1 || hp.Last < last {
		return hostile("%q has events %d to %d, received %d", hp.Token, hp.First, hp.Last, last)
	}
	conn.Send(p.appendPosition)
	return nil
}

func (p *proc) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// replyAfter answers a command when the given event is stored.
func (rs *replies) replyAfter(after process.Seq, c command.Command, r command.Reply) {
	rs.p.mu.Lock()
	if rs.p.stored < after && !rs.p.closed {
		for len(rs.answers) > 0 && rs.answers[0].cmd.Expired(time.Now()) != nil {
			rs.answers = rs.answers[1:] // its sender has given up
		}
		rs.answers = append(rs.answers, answer{after: after, cmd: c, reply: r})
		rs.p.mu.Unlock()
		return
	}
	rs.p.mu.Unlock()
	rs.p.h.cfg.Commands.Answer(c, r)
}

// holdCursor keeps the cursor before another command that starts p, as long as p's record has
// only its claim: without a shim, only that command read again can end it.
func (rs *replies) holdCursor(rev uint64) {
	rs.p.mu.Lock()
	defer rs.p.mu.Unlock()
	if rs.released {
		rs.p.h.cfg.Commands.End(rev)
		return
	}
	rs.starts = append(rs.starts, rev)
}

// releaseCursor lets the cursor pass p's starts: the record has more than its claim.
func (rs *replies) releaseCursor() {
	if rs.released {
		return
	}
	rs.p.mu.Lock()
	defer rs.p.mu.Unlock()
	rs.released = true
	for _, rev := range rs.starts {
		rs.p.h.cfg.Commands.End(rev)
	}
	rs.starts = nil
}

// close ends the work on p and answers everything that waits for it.
func (p *proc) close() {
	p.replies.releaseCursor()
	p.mu.Lock()
	p.closed = true
	if p.ss != nil {
		p.ss.flow.AddPending(-p.inbox.heldBytes)
		p.inbox.heldBytes = 0
	}
	queue, answers := p.inbox.queue, p.replies.answers
	p.inbox.queue, p.replies.answers = nil, nil
	p.mu.Unlock()
	for _, it := range queue {
		p.h.pool.Put(it.mem)
	}
	for _, a := range answers {
		a.reply.Err = kind.New(kind.NotFound, "command", a.cmd.ID, "the process has ended")
		p.h.cfg.Commands.Answer(a.cmd, a.reply)
	}
	if p.ss != nil {
		p.ss.queue.drop(p)
	}
	close(p.done)
	if p.ss != nil {
		p.ss.remove(p)
	}
}
