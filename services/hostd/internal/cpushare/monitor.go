package cpushare

import "time"

const (
	busyCPU          = 0.70                  // of a CPU, over a span: a sandbox that uses more is busy all the time, unless it serves requests
	calmCPU          = 0.50                  // of a CPU: a deprioritized sandbox that uses less, with
	idleCPU          = 0.60                  // of a CPU idle, is restored
	monitorSpan      = 2 * time.Second       // a sandbox that runs one command after another for less than this is not busy
	requestCPU       = 50 * time.Millisecond // of a CPU per request: a sandbox that uses no more serves
	saturatedIdle    = 0.30                  // of a CPU idle: with less, the CPUs are saturated, and a busy sandbox is deprioritized at once,
	fullCPU          = 0.97                  // or one that uses this much, whatever the others use
	saturatedSamples = 2                     // samples until saturation is certain
	starvedCPU       = 0.10                  // of a CPU: a deprioritized sandbox that gets less on saturated CPUs,
	starvedSamples   = 3                     // for this many samples,
	restoreTime      = time.Second           // is restored for this long
)

// monitor detects sandboxes that compute all the time without requests. What a sandbox uses
// while CPUs are idle is its demand. One that serves, in which a client starts one command
// after another, may well use all of a CPU, and does on slow ones: it must not be deprioritized
// and have to share with the busy ones. A deprioritized sandbox gets less than its demand
// although CPUs are idle: others preempt it again and again, and Linux rarely migrates it.
type monitor struct {
	last          sample
	used          float64   // CPUs, between the last two samples; negative if unknown
	spanStart     sample    // start of the span
	spanUsed      float64   // CPUs, over the last span; negative if unknown
	spanIdle      float64   // idle CPUs, over the last span
	spanExplained float64   // CPUs that the requests of the last span explain
	usedBefore    float64   // CPUs that it used when it was deprioritized
	starved       int       // consecutive samples in which it was starved
	restoredUntil time.Time // until then it is not deprioritized
	applied       bool      // the next field was applied in this run
	deprioritized bool
	exempt        bool // it cannot be deprioritized
}

// sample is the CPU time used up to a moment, the idle time of all CPUs, and the number of
// requests from clients.
type sample struct {
	at        time.Time // zero: no sample
	cpu, idle time.Duration
	requests  uint64
}

// since returns how many CPUs were used between the samples, and how many were idle; 0 if
// unknown.
func (u sample) since(then sample) (used, idle float64) {
	past := u.at.Sub(then.at).Seconds()
	if then.at.IsZero() || past <= 0 {
		return 0, 0
	}
	return (u.cpu - then.cpu).Seconds() / past, (u.idle - then.idle).Seconds() / past
}

// explained returns how many CPUs the requests between the samples explain; 0 if unknown.
func (u sample) explained(then sample) float64 {
	past := u.at.Sub(then.at)
	if then.at.IsZero() || past <= 0 {
		return 0
	}
	return (time.Duration(u.requests-then.requests) * requestCPU).Seconds() / past.Seconds()
}

// reset drops the samples of a paused sandbox: they say nothing about later.
func (u *monitor) reset() {
	u.last, u.used = sample{}, -1
	u.beginSpan(sample{})
}

// beginSpan starts a span.
func (u *monitor) beginSpan(now sample) {
	u.spanStart, u.spanUsed, u.spanIdle, u.spanExplained = now, -1, 0, 0
}

// add adds the next sample.
func (u *monitor) add(now sample) {
	if u.last.at.IsZero() {
		u.reset()
		u.beginSpan(now)
	} else {
		u.used, _ = now.since(u.last)
	}
	if u.last = now; now.at.Sub(u.spanStart.at) >= monitorSpan {
		u.spanUsed, u.spanIdle = now.since(u.spanStart)
		u.spanExplained = now.explained(u.spanStart)
		u.spanStart = now
	}
}

// serving reports whether it used no more than its requests explain, over the last span or since.
func (u *monitor) serving() bool {
	used, _ := u.last.since(u.spanStart)
	return u.spanUsed >= 0 && u.spanUsed <= u.spanExplained || used > 0 && used <= u.last.explained(u.spanStart)
}

// saturates reports whether the sandbox alone may saturate the CPUs. all is the number of CPUs
// that all sandboxes used.
func (u *monitor) saturates(all float64) bool {
	return u.used >= fullCPU || u.used >= busyCPU && all-u.used >= starvedCPU
}

// decide sets deprioritized and reports whether it must be applied. left: there were idle CPUs.
// must: deprioritize the sandbox whatever its demand.
func (u *monitor) decide(now time.Time, left, must bool) (apply bool) {
	before := u.deprioritized
	if u.used < 0 {
		return before
	}
	if u.starved++; !before || left || u.used >= starvedCPU {
		u.starved = 0
	}
	switch {
	case u.starved >= starvedSamples:
		u.deprioritized, u.restoredUntil = false, now.Add(restoreTime)
	case before:
		// Demand shows only on idle CPUs, requests always.
		u.deprioritized = u.spanExplained < u.usedBefore && (u.spanUsed < 0 || u.spanUsed >= calmCPU || u.spanIdle < idleCPU)
	case now.After(u.restoredUntil):
		u.deprioritized = must || u.spanUsed >= busyCPU && u.spanUsed > u.spanExplained
	}
	if u.deprioritized != before {
		u.usedBefore = max(u.spanUsed, u.used)
		u.beginSpan(u.last)
	}
	apply = before || u.deprioritized || !u.applied
	u.applied = true
	return apply
}
