package shim

import "time"

// standstill measures how long the sandbox was paused, which does not count towards the
// timeouts of its processes. It detects a pause by a timer that fires late. A busy host
// whose timers are late gives a process slightly more time, never less. Shim.mu guards it.
type standstill struct {
	beats  *time.Timer // nil: no process has a timeout
	last   time.Time   // when the shim last ran for certain
	lost   time.Duration
	needed int // processes with a timeout
}

const (
	beatEvery = 500 * time.Millisecond
	stillFrom = 4 * beatEvery // a shorter gap is a busy host
)

// at returns the total time paused until now.
func (w *standstill) at(now time.Time) time.Duration {
	if gap := now.Sub(w.last); gap > stillFrom && !w.last.IsZero() {
		w.lost += gap - beatEvery
	}
	w.last = now
	return w.lost
}

// watchTime kills p after d, not counting time in which the sandbox is paused. Shim.mu is
// held.
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

// unwatchTime ends p's timeout. Shim.mu is held.
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

// spared reports whether p's timeout is extended by time that the sandbox was paused, and
// extends it. Shim.mu is held.
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
