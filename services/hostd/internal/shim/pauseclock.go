package shim

import "time"

// pauseClock measures how long the sandbox was paused, which does not count toward the
// timeouts of its processes. It detects a pause by a timer that fires late. A busy host
// whose timers are late gives a process slightly more time, never less. Shim.mu guards it.
type pauseClock struct {
	ticker *time.Timer // nil: no process has a timeout
	last   time.Time   // when the shim last ran for certain
	paused time.Duration
	users  int // processes with a timeout
}

const (
	pauseTick      = 500 * time.Millisecond
	pauseThreshold = 4 * pauseTick // a shorter gap is a busy host
)

// pausedTime returns the total time paused until now.
func (w *pauseClock) pausedTime(now time.Time) time.Duration {
	if gap := now.Sub(w.last); gap > pauseThreshold && !w.last.IsZero() {
		w.paused += gap - pauseTick
	}
	w.last = now
	return w.paused
}

// startTimeout kills p after d, not counting time in which the sandbox is paused. Shim.mu is
// held.
func (p *proc) startTimeout(d time.Duration) {
	s := p.s
	w := &s.pauses
	if w.users++; w.ticker == nil {
		w.last = time.Now()
		w.ticker = time.AfterFunc(pauseTick, s.tickPauseClock)
	}
	p.pausedAtStart = w.pausedTime(time.Now())
	p.timed = true
	p.timer = time.AfterFunc(d, p.timeout)
}

// stopTimeout ends p's timeout. Shim.mu is held.
func (p *proc) stopTimeout() {
	if p.timed {
		p.timed = false
		p.s.pauses.users--
	}
}

func (s *Shim) tickPauseClock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.pauses
	w.pausedTime(time.Now())
	if w.users == 0 {
		w.ticker = nil
		return
	}
	w.ticker.Reset(pauseTick)
}

// extendTimeout reports whether p's timeout is extended by time that the sandbox was paused, and
// extends it. Shim.mu is held.
func (p *proc) extendTimeout() bool {
	lost := p.s.pauses.pausedTime(time.Now())
	more := lost - p.pausedAtStart
	if more <= 0 {
		return false
	}
	p.pausedAtStart = lost
	p.timer.Reset(more)
	return true
}
