package procs

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/children"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/output"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// proc is one process. Table.mu guards all of it.
type proc struct {
	t     *Table
	token string
	pid   int             // 0: never ran
	child *children.Child // nil: a watch, or not started yet
	rec   *output.Record
	rev   uint64 // of the last command taken
	spec  []byte // as encoded by hostd

	starting bool         // the outcome of the start is not known yet
	queued   commandQueue // commands until then

	reading reading
	isWatch bool     // it watches files
	watch   *watch   // nil: a process of the kernel, or not started yet
	in      *input   // nil: no stdin
	tty     *os.File // the terminal's master; nil: pipes, or closed
	dedup   inputDedup

	timeout   timeout
	requested map[int32]bool // signals requested by clients
	kills     uint64         // OOM kills counted before it began
	reaped    bool
	exit      process.Exit
	exited    bool // Exited was recorded
	untilEOF  bool // silence after the exit does not complete the record, unless it has a terminal
	silence   silence
	finished  bool // the record is complete, or was discarded: output is dropped
}

// reading has the streams of a process.
type reading struct {
	streams   []*output.Stream
	open      int // streams that are not at EOF
	undrained int // streams that may hold unread output of the exited process
}

// silence completes the record of an exited process whose pipes are still open.
type silence struct {
	timer    *time.Timer // nil: there is no such pipe
	exitedAt time.Time
	checkAt  time.Time // when checkSilence is due
}

// ErrProtocol reports an invalid frame of hostd.
var ErrProtocol = errors.New("hostd broke the protocol")

// Resume handles wire.TypeResume: hostd has everything up to a seq.
func (t *Table) Resume(m wire.Mark) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.procs[m.Token]; p != nil && !p.rec.Resume(m.Seq) {
		return ErrProtocol
	}
	return nil
}

// Ack handles wire.TypeAck: everything up to a seq is stored.
func (t *Table) Ack(m wire.Mark) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.procs[m.Token]
	if p == nil {
		return nil
	}
	complete, ok := p.rec.Ack(m.Seq)
	if !ok {
		return ErrProtocol
	}
	if complete {
		t.remove(p)
	}
	return nil
}

// Forget handles wire.TypeForget: it ends a process whose record must not be written any more.
func (t *Table) Forget(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.procs[token]; p != nil {
		p.abandon()
	}
}

// abandon ends a process whose record must not be written any more.
func (p *proc) abandon() {
	if !p.reaped && p.pid != 0 {
		p.kill(syscall.SIGKILL) //nolint:errcheck // it may be gone already
	}
	p.discard()
}

// discard drops all past and future events of p.
func (p *proc) discard() {
	p.finished = true
	p.closeInput()
	p.rec.Discard()
	p.t.remove(p)
}

// settle records the events that are due: Exited once all of the process's own output is
// before it, Finished once nothing more can follow.
func (p *proc) settle() {
	if !p.reaped || p.finished {
		return
	}
	if !p.exited && p.reading.undrained == 0 {
		p.rec.Append(process.Exited{Exit: p.exit})
		p.setExited()
		if p.reading.open > 0 && (!p.untilEOF || p.tty != nil || p.t.ending) {
			p.awaitSilence(p.t.grace)
		}
	}
	if p.exited && p.reading.open == 0 {
		p.finish()
	}
}

// limitSilence makes silence complete the record, as without UntilEOF.
func (p *proc) limitSilence() {
	if !p.untilEOF {
		return
	}
	p.untilEOF = false
	if p.exited && !p.finished {
		p.awaitSilence(p.t.grace)
	}
}

// awaitSilence completes the record of an exited process whose pipes are still open once they
// have been silent for a time.
func (p *proc) awaitSilence(grace time.Duration) {
	p.silence.checkAt = time.Now().Add(grace)
	if p.silence.timer == nil {
		p.silence.timer = time.AfterFunc(grace, p.checkSilence)
		return
	}
	p.silence.timer.Reset(grace)
}

// setExited is called when Exited was recorded.
func (p *proc) setExited() {
	p.exited = true
	p.silence.exitedAt = time.Now()
	p.closeInput()
}

// checkSilence completes the record of an exited process whose pipes are still open but silent.
func (p *proc) checkSilence() {
	t, s := p.t, &p.silence
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.finished {
		return
	}
	now := time.Now()
	if s.wasPaused(now) {
		p.rec.SetReady(now)
	}
	if wait := s.remaining(now, p.rec.Activity(), t.grace, t.graceMax); wait > 0 {
		s.checkAt = now.Add(wait)
		s.timer.Reset(wait)
		return
	}
	p.finish()
}

// wasPaused reports whether the sandbox was paused when checkSilence was due.
func (s *silence) wasPaused(now time.Time) bool { return now.Sub(s.checkAt) > pauseThreshold }

// remaining returns how much longer the record stays open.
func (s *silence) remaining(now time.Time, a output.Activity, grace, graceMax time.Duration) time.Duration {
	since := later(s.exitedAt, a.Ready)
	wait := min(later(since, a.Wrote).Add(grace).Sub(now), since.Add(graceMax).Sub(now))
	if a.Blocked {
		wait = max(wait, grace)
	}
	return wait
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (p *proc) finish() {
	p.rec.Finish(p.exit)
	p.setFinished()
}

// setFinished is called when Finished was recorded.
func (p *proc) setFinished() {
	p.finished = true
	if p.silence.timer != nil {
		p.silence.timer.Stop()
	}
	p.t.ifEnded()
}

// fail records that a process never ran. The message may quote the spec, which is of any
// length and need not be UTF-8.
func (p *proc) fail(f process.Failed) {
	f.Message = strings.ToValidUTF8(f.Message[:min(len(f.Message), wire.MaxText)], "")
	p.rec.Fail(f)
	p.reaped = true
	p.setFinished()
}

// streams is a process as the owner of its streams.
type streams struct{ p *proc }

// Drained implements output.Owner.
func (o streams) Drained() {
	o.p.t.mu.Lock()
	defer o.p.t.mu.Unlock()
	o.p.reading.undrained--
	o.p.settle()
}

// EOF implements output.Owner.
func (o streams) EOF(drained bool) {
	o.p.t.mu.Lock()
	defer o.p.t.mu.Unlock()
	o.p.reading.open--
	if !drained {
		o.p.reading.undrained--
	}
	o.p.settle()
}

// Closing implements output.Owner.
func (o streams) Closing(f *os.File) {
	o.p.t.mu.Lock()
	defer o.p.t.mu.Unlock()
	if o.p.tty == f {
		o.p.tty = nil
		o.p.closeInput()
	}
}
