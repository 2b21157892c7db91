package shim

import "time"

// standstill tells how long the shim could not run because its sandbox was
// paused: no process's own time passes then. It is told by a beat that stayed
// away; a busy host that skips beats gives a process a little more time than it
// was to have, never less. Shim.mu guards it.
type standstill struct {
	beats  *time.Timer // nil: no process has a time of its own
	last   time.Time   // when the shim is known to have run
	lost   time.Duration
	needed int // processes that have a time of their own
}

const (
	beatEvery = 500 * time.Millisecond
	stillFrom = 4 * beatEvery // what is less is a busy host
)

// at gives how long the sandbox has stood still by now.
func (w *standstill) at(now time.Time) time.Duration {
	if gap := now.Sub(w.last); gap > stillFrom && !w.last.IsZero() {
		w.lost += gap - beatEvery
	}
	w.last = now
	return w.lost
}

// watchTime ends p after d, in which the sandbox's standing still does not count.
// Shim.mu is held.
func (p *proc) watchTime(d time.Duration) {
	s := p.s
	w := &s.still
	if w.needed++; w.beats == nil {
		w.last = time.Now()
		w.beats = time.AfterFunc(beatEvery, s.beat)
	}
	p.stillAt = w.at(time.Now())
	p.timed = true
	p.timer = time.AfterFunc(d, p.timeout)
}

// unwatchTime says that p's own time does not matter any more. Shim.mu is held.
func (p *proc) unwatchTime() {
	if p.timed {
		p.timed = false
		p.s.still.needed--
	}
}

func (s *Shim) beat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.still
	w.at(time.Now())
	if w.needed == 0 {
		w.beats = nil
		return
	}
	w.beats.Reset(beatEvery)
}

// spared reports whether p is to have more time, and gives it: what it lost while
// the sandbox stood still. Shim.mu is held.
func (p *proc) spared() bool {
	lost := p.s.still.at(time.Now())
	more := lost - p.stillAt
	if more <= 0 {
		return false
	}
	p.stillAt = lost
	p.timer.Reset(more)
	return true
}
