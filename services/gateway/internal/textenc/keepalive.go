package textenc

import "time"

// Pulse says when something must be sent because nothing else was. It belongs to
// one stream.
type Pulse struct {
	every time.Duration
	last  time.Time // when bytes were last sent, as far as Due knows
	sent  bool      // since then
}

// NewPulse gives a pulse that is due every so long; 0: never.
func NewPulse(every time.Duration) Pulse { return Pulse{every: every} }

// Sent says that bytes were appended.
func (p *Pulse) Sent() { p.sent = true }

// Due reports whether a keepalive is due at now, which then counts as sent, and
// how long until the next may be (0: never).
func (p *Pulse) Due(now time.Time) (due bool, wait time.Duration) {
	if p.every <= 0 {
		return false, 0
	}
	if p.sent || p.last.IsZero() {
		p.sent, p.last = false, now
		return false, p.every
	}
	if wait = p.every - now.Sub(p.last); wait > 0 {
		return false, wait
	}
	p.last = now
	return true, p.every
}
