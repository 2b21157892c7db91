package shim

import "time"

// pace bounds how fast output is read. Its zero value bounds nothing.
type pace struct {
	rate uint64    // bytes a second; 0: any
	paid time.Time // when all that was read will have been allowed
}

// burst is how long a pace that was not used up may be exceeded.
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

// wait is how long nothing may be read.
func (p *pace) wait(now time.Time) time.Duration {
	if p.rate == 0 {
		return 0
	}
	return max(0, p.paid.Sub(now))
}

// slowed is how long p's output must wait for its own pace and the sandbox's.
func (s *Shim) slowed(p *proc) time.Duration {
	if s.pace.rate == 0 && p.pace.rate == 0 {
		return 0
	}
	now := time.Now()
	return max(s.pace.wait(now), p.pace.wait(now))
}

// setPace puts the rates in force, also for what runs.
func (s *Shim) setPace() {
	s.pace.rate = s.limits.RateTotal
	for _, p := range s.procs {
		p.pace.rate = s.limits.Rate
	}
}
