package websocket

import "time"

// alive is what checkAlive knows. Only its calls use it, of which there is one at a time.
type alive struct {
	timer *time.Timer
	asked time.Time // time of the oldest ping without an answer; zero: there is none
	seen  uint64    // wire.reads at that time
}

const maxDuration time.Duration = 1<<63 - 1

// startPings has a timer call checkAlive, so that an idle connection needs no goroutine for it.
func (c *Conn) startPings() {
	c.alive.timer = time.AfterFunc(maxDuration, c.checkAlive) // checkAlive uses the timer
	c.alive.timer.Reset(c.opts.PingInterval)
}

// checkAlive disconnects the client if it has sent nothing for PongTimeout since a ping, and
// otherwise sends the next ping. While the handler reads nothing, the client may have sent
// something.
func (c *Conn) checkAlive() {
	if c.ending() != 0 {
		return
	}
	a, reads, now := &c.alive, c.wire.reads.Load(), time.Now()
	switch reading := reads%2 == 1; {
	case a.asked.IsZero() || reads != a.seen || !reading:
		a.asked, a.seen = now, reads
	case now.Sub(a.asked) >= c.opts.PongTimeout:
		c.ended(endNoPong)
		c.wire.raw.Cancel(errNoPong)
		c.wire.raw.Close() // nothing can be sent
		return
	}
	c.wire.postPing()
	a.timer.Reset(c.opts.PingInterval)
}
