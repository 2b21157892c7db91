package procs

import (
	"syscall"
	"time"
)

// pauseClock measures how long the sandbox was paused, which does not count toward the
// timeouts of its processes. It detects a pause by a timer that fires late. A busy host
// whose timers are late gives a process slightly more time, never less. Table.mu guards it.
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

// timeout is the limit of a process's run time. Table.mu guards it.
type timeout struct {
	timer         *time.Timer // nil: no limit
	on            bool
	fired         bool          // it killed the process
	pausedAtStart time.Duration // pause time of the sandbox when the limit began to count
}

// startTimeout kills p after d, not counting time in which the sandbox is paused. Table.mu is
// held.
func (p *proc) startTimeout(d time.Duration) {
	w := &p.t.pauses
	if w.users++; w.ticker == nil {
		w.last = time.Now()
		w.ticker = time.AfterFunc(pauseTick, p.t.tickPauseClock)
	}
	p.timeout = timeout{timer: time.AfterFunc(d, p.timedOut), on: true, pausedAtStart: w.pausedTime(time.Now())}
}

// stopTimeout ends p's timeout. Table.mu is held.
func (p *proc) stopTimeout() {
	if p.timeout.on {
		p.timeout.on = false
		p.timeout.timer.Stop()
		p.t.pauses.users--
	}
}

// timedOut kills a process whose timeout ran out.
func (p *proc) timedOut() {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if p.reaped || p.extendTimeout() {
		return
	}
	p.timeout.fired = true
	p.kill(syscall.SIGKILL) //nolint:errcheck // it may have ended
}

// extendTimeout reports whether p's timeout is extended by time that the sandbox was paused, and
// extends it. Table.mu is held.
func (p *proc) extendTimeout() bool {
	lost := p.t.pauses.pausedTime(time.Now())
	more := lost - p.timeout.pausedAtStart
	if more <= 0 {
		return false
	}
	p.timeout.pausedAtStart = lost
	p.timeout.timer.Reset(more)
	return true
}

func (t *Table) tickPauseClock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &t.pauses
	w.pausedTime(time.Now())
	if w.users == 0 {
		w.ticker = nil
		return
	}
	w.ticker.Reset(pauseTick)
}
