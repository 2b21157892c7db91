package output

import "time"

// pace limits how fast output is read. The zero value sets no limit.
type pace struct {
	rate uint64    // bytes per second; 0: no limit
	paid time.Time // when everything read so far will have been allowed
}

// burst is how long a rate may be exceeded after idle time.
const burst = 100 * time.Millisecond

// took counts n bytes that were read.
func (p *pace) took(now time.Time, n int) {
	if p.rate == 0 {
		return
	}
	if least := now.Add(-burst); p.paid.Before(least) {
		p.paid = least
	}
	p.paid = p.paid.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
}

// wait returns how long reading must pause.
func (p *pace) wait(now time.Time) time.Duration {
	if p.rate == 0 {
		return 0
	}
	return max(0, p.paid.Sub(now))
}

// slowed returns how long r's output must wait for its own rate and the sandbox's.
func (b *Buffer) slowed(r *Record) time.Duration {
	if b.pace.rate == 0 && r.pace.rate == 0 {
		return 0
	}
	now := time.Now()
	return max(b.pace.wait(now), r.pace.wait(now))
}

// setPace applies the rates, also to the records of running processes.
func (b *Buffer) setPace() {
	b.pace.rate = b.limits.RateTotal
	for r := range b.records {
		r.pace.rate = b.limits.Rate
	}
}
