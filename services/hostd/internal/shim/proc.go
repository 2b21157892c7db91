package shim

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/children"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// proc is one process. Shim.mu guards all of it.
type proc struct {
	s     *Shim
	token string
	pid   int             // 0: never ran
	child *children.Child // nil: a watch, or not started yet
	spool spool
	rev   uint64 // of the last command taken
	spec  []byte // as encoded by hostd
	moved bool   // hostd was not informed yet that it belongs to this sandbox
	after uint64 // if moved: see wire.Moved

	starting     bool       // the outcome of the start is not known yet
	pending      []*command // commands until then, in the order of their revs
	pendingBytes int        // size of pending

	queued  bool // in session.ready
	streams []*stream
	isWatch bool     // it watches files
	watch   *watch   // nil: a process of the kernel, or not started yet
	in      *input   // nil: no stdin
	tty     *os.File // the terminal's master; nil: pipes, or closed

	open           int           // streams that are not at EOF
	undrained      int           // streams that may hold unread output of the exited process
	blocked        int           // streams that wait for space in the spool
	timer          *time.Timer   // of its timeout, then of the silence after its exit
	sendTimer      *time.Timer   // delays sending; nil: never used
	pausedAtStart  time.Duration // pause time of the sandbox when its timeout began
	timed          bool          // it has a timeout
	timedOut       bool
	requested      map[int32]bool // signals requested by clients
	reaped         bool
	exited         bool // Exited was recorded
	finished       bool // Finished was recorded, or the record was abandoned: output is dropped
	abandoned      bool // nothing is recorded any more
	concluded      bool // see conclude
	exit           process.Exit
	kills          uint64 // OOM kills counted before it began
	exitedAt       time.Time
	wroteAt        time.Time // time of the last output
	readyAt        time.Time // since when its output can be read again, after a full spool or a pause
	silenceCheckAt time.Time // when checkSilence is due

	pace     pace
	dedup    inputDedup // of input
	recorded uint64     // bytes of output
	dropped  map[process.Stream]*drops
}

// drops counts the output of a stream that was not recorded: because of the quota, or of a
// record that ended early.
type drops struct{ n, recorded uint64 }

var errProtocol = errors.New("hostd broke the protocol")

// describe returns p's entry in a Hello.
func (p *proc) describe() wire.Process {
	return wire.Process{Token: p.token, PID: uint32(p.pid), First: p.spool.first(), Last: p.spool.last, Rev: p.rev}
}

// record appends an event that is not output.
func (p *proc) record(b process.Body) uint64 {
	seq := p.push(entry{time: time.Now().UnixNano(), body: b})
	p.queueSend()
	return seq
}

// push appends an event and returns its seq, or 0 if the record was abandoned.
func (p *proc) push(e entry) uint64 {
	if p.abandoned {
		return 0
	}
	e.seq = p.spool.push(e)
	p.s.bytes += e.cost()
	if p.s.spilling() {
		p.spill()
	}
	return e.seq
}

// queueSend queues p in the session if it has something to send.
func (p *proc) queueSend() {
	if c := p.s.session; c != nil {
		c.enqueue(p)
	}
}

// resume handles wire.TypeResume: hostd has everything up to seq.
func (p *proc) resume(seq uint64) error {
	c := p.s.session
	c.flight -= p.spool.flight
	if !p.spool.resume(seq) {
		return errProtocol
	}
	c.flight += p.spool.flight
	p.queueSend()
	return nil
}

// ack handles wire.TypeAck: everything up to seq is stored.
func (p *proc) ack(seq uint64) error {
	if !p.spool.resumed || seq > p.spool.sent() {
		return errProtocol
	}
	s, c := p.s, p.s.session
	p.moved = false
	was := p.spool.bytes
	c.freeWindow(p.spool.drop(seq, s.free))
	s.bytes -= was - p.spool.bytes
	s.ackedAt, s.stalled = time.Now(), false
	s.readable.Broadcast()
	if p.finished && p.spool.len() == 0 {
		s.forget(p)
		return nil
	}
	p.queueSend()
	return nil
}

// abandon ends a process whose record must not be written any more.
func (p *proc) abandon(uint64) error {
	if !p.reaped && p.pid != 0 {
		p.kill(syscall.SIGKILL) //nolint:errcheck // it may be gone already
	}
	p.discard()
	return nil
}

// discard drops all past and future events of p.
func (p *proc) discard() {
	s := p.s
	p.finished, p.abandoned = true, true
	p.closeInput()
	s.bytes -= p.spool.bytes
	acked := p.spool.flight
	p.spool.clear(s.free, s.freeExtent)
	if c := s.session; c != nil {
		c.freeWindow(acked)
	}
	s.readable.Broadcast()
	s.forget(p)
}

// settle records the events that are due: Exited once all of the process's own output is
// before it, Finished once nothing more can follow.
func (p *proc) settle() {
	if !p.reaped || p.finished {
		return
	}
	if !p.exited && p.undrained == 0 {
		p.recordExit()
		if p.open > 0 {
			p.silenceCheckAt = p.exitedAt.Add(p.s.limits.Grace)
			p.timer = time.AfterFunc(p.s.limits.Grace, p.checkSilence)
		}
	}
	if p.exited && p.open == 0 {
		p.finish()
	}
}

func (p *proc) recordExit() {
	p.exited = true
	p.exitedAt = time.Now()
	p.record(process.Exited{Exit: p.exit})
	p.closeInput()
}

// checkSilence ends the record of an exited process whose pipes are still open but silent.
func (p *proc) checkSilence() {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.finished {
		return
	}
	now, limits := time.Now(), s.limits
	if now.Sub(p.silenceCheckAt) > pauseThreshold { // the sandbox was paused
		p.readyAt = now
	}
	since := later(p.exitedAt, p.readyAt)
	wait := min(later(since, p.wroteAt).Add(limits.Grace).Sub(now), since.Add(limits.GraceMax).Sub(now))
	if p.blocked > 0 { // there is output, but no space for it
		wait = max(wait, limits.Grace)
	}
	if wait > 0 {
		p.silenceCheckAt = now.Add(wait)
		p.timer.Reset(wait)
		return
	}
	p.finish()
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (p *proc) finish() {
	p.recordDropped(true)
	p.record(process.Finished{Exit: p.exit})
	p.finished = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.s.ifEnded()
}

// fail records that a process never ran. The message may quote the spec, which is of any
// length and need not be UTF-8.
func (p *proc) fail(f process.Failed) {
	f.Message = strings.ToValidUTF8(f.Message[:min(len(f.Message), wire.MaxText)], "")
	p.record(f)
	p.record(process.Finished{Exit: process.Exit{Cause: process.CauseNotStarted, Message: f.Message}})
	p.finished = true
	p.reaped = true
	p.s.ifEnded()
}
