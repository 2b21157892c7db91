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

// proc is a process whose record has no end yet. The goroutine that runs begin
// or resume is the record's only writer.
type proc struct {
	h    *host
	b    *box // nil: its sandbox does not run here
	id   process.ID
	ref  events.Ref
	done chan struct{} // closed when the record has its end, or is another's
	wake chan struct{} // has a value when there is something to do

	stranger bool // only the shim knew it when it was met

	// Of its goroutine.
	w        *events.Writer
	start    *events.Command // nil: found in the shim or the catalogue
	frame    []byte          // the Start for the shim
	admitted bool            // the start counts among what waits for the shim
	spec     process.Spec    // its Env goes into the catalogue, never into the record
	hash     []byte
	sum      process.Summary
	rev      uint64 // of the catalogue's entry
	final    bool   // that entry has the end
	// Where the record ends was not asked yet; see presume.
	presumed bool
	follows  bool // w follows a tip that may be out of date; see follow
	ending   bool // what is stored now is hostd's word alone; see end

	mu      sync.Mutex
	known   *wire.Process // what the shim says of it; nil: the shim does not have it
	taken   bool          // the shim has had its start
	track   *link.Track   // nil: nothing may come from the shim yet
	queue   []item
	held    int              // link.Weight of those taken and not stored
	lost    process.Exit     // with a Cause: nothing more will come from the shim, and that is its end
	stored  process.Seq      // the last event on record
	sent    bool             // the start was sent: commands may follow
	early   []events.Command // those that came before
	over    bool             // done: what comes late is refused
	noted   bool             // its starts need not be looked at again; written by its goroutine
	starts  []uint64         // commands that begin it, until then
	answers []answer
}

// item is an event to be stored, and the memory it lies in.
type item struct {
	event process.Event
	mem   []byte
}

// answer is a reply that counts once an event is stored.
type answer struct {
	after process.Seq
	cmd   events.Command
	reply events.Reply
}

func (h *host) newProc(b *box, id process.ID) *proc {
	ref := events.Ref{Host: h.cfg.Name, ID: id}
	return &proc{
		h: h, b: b, id: id, ref: ref, w: h.log.Writer(ref, h.epoch),
		done: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

func (p *proc) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// maxHeld is how much of a sandbox may wait to be stored, as link.Weight counts: the
// window, and the same again. A connection that is made anew may bring one before its
// shim was told what we have of the other processes.
const maxHeld = 2*wire.WindowConn + wire.MaxFrame

// take puts an event of the shim in line.
func (p *proc) take(m *link.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || p.lost.Cause != "" {
		p.h.pool.Put(m.Mem)
		return nil
	}
	if p.track == nil {
		return p.b.hostile("event of %q before it was asked for", m.Token)
	}
	if err := p.track.Take(&m.Event); err != nil {
		return err
	}
	weight := link.Weight(&m.Event)
	p.held += weight
	if held := p.b.flow.Hold(weight); held > maxHeld {
		return p.b.hostile("%d bytes of its events wait to be stored", held)
	}
	p.queue = append(p.queue, item{event: m.Event, mem: m.Mem})
	p.poke()
	return nil
}

// lose says that nothing more will come from the shim: the record ends for the
// given cause, unless it has said how it ended.
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

// meet is called after a reconnect with what the shim says of p; box.mu is held.
func (p *proc) meet(conn *link.Conn, hp wire.Process) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = &hp
	if p.track == nil {
		return nil // its goroutine finds out where it stands
	}
	if last := p.track.Last; hp.First > last+1 || hp.Last < last {
		return p.b.hostile("%q has events %d to %d, %d were seen", hp.Token, hp.First, hp.Last, last)
	}
	conn.Send(p.place)
	return nil
}

// command sends a command to the process, after its start.
func (p *proc) command(c events.Command) {
	p.mu.Lock()
	switch {
	case p.over:
		p.mu.Unlock()
		p.h.refuse(c, noProcess(p.id))
		return
	case !p.sent:
		p.early = append(p.early, c)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	p.b.command(c, p, frameOf(&c))
}

// setSent lets commands through, first those that waited. The start, or what
// makes up for it, was sent before.
func (p *proc) setSent() {
	for {
		p.mu.Lock()
		if len(p.early) == 0 {
			p.sent = true
			p.mu.Unlock()
			return
		}
		c := p.early[0]
		p.early = p.early[1:]
		p.mu.Unlock()
		p.b.command(c, p, frameOf(&c))
	}
}

// replyAfter answers a command when the event that it waits for is stored.
func (p *proc) replyAfter(after process.Seq, c events.Command, r events.Reply) {
	p.mu.Lock()
	if p.stored < after && !p.over {
		for len(p.answers) > 0 && p.answers[0].cmd.Expired(time.Now()) != nil {
			p.answers = p.answers[1:] // nobody waits for it any more
		}
		p.answers = append(p.answers, answer{after: after, cmd: c, reply: r})
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	p.h.answer(c, r)
}

// owe has a command that begins p, which is known already, be read again by the next life as
// long as nothing is known of it but that it was claimed: without a shim it has no end else.
func (p *proc) owe(rev uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.noted {
		p.h.cursor.end(rev)
		return
	}
	p.starts = append(p.starts, rev)
}

// note says that p's starts need not be looked at again: more than its claim is on record.
func (p *proc) note() {
	if p.noted {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noted = true
	for _, rev := range p.starts {
		p.h.cursor.end(rev)
	}
	p.starts = nil
}

// close ends p's time here: nothing waits for it any more.
func (p *proc) close() {
	p.note()
	p.mu.Lock()
	p.over = true
	if p.b != nil {
		p.b.flow.Hold(-p.held)
		p.held = 0
	}
	queue, early, answers := p.queue, p.early, p.answers
	p.queue, p.early, p.answers = nil, nil, nil
	p.mu.Unlock()
	for _, it := range queue {
		p.h.pool.Put(it.mem)
	}
	for _, c := range early {
		p.h.refuse(c, noProcess(p.id))
	}
	for _, a := range answers {
		a.reply.Err = kind.New(kind.NotFound, "command", a.cmd.ID, "the process has ended")
		p.h.answer(a.cmd, a.reply)
	}
	close(p.done)
	if p.b != nil {
		p.b.remove(p)
	}
}
