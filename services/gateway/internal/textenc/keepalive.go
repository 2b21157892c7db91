package textenc

import "time"

// KeepaliveTimer computes when a stream must send a keepalive because it has sent nothing
// else. It belongs to one stream.
type KeepaliveTimer struct {
	every time.Duration
	last  time.Time // when bytes were last sent, as of the last Due
	sent  bool      // bytes were sent since then
}

// NewKeepaliveTimer returns a timer with the given interval; 0 disables it.
func NewKeepaliveTimer(every time.Duration) KeepaliveTimer { return KeepaliveTimer{every: every} }

// Sent records that bytes were appended.
func (p *KeepaliveTimer) Sent() { p.sent = true }

// Due reports whether a keepalive is due at now, which then counts as sent, and the time
// until the next may be due (0: never).
func (p *KeepaliveTimer) Due(now time.Time) (due bool, wait time.Duration) {
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
