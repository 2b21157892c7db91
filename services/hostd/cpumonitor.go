package hostd

import (
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

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

// cpuMonitor detects sandboxes that compute all the time without requests. What a sandbox uses
// while CPUs are idle is its demand. One that serves, in which a client starts one command
// after another, may well use all of a CPU, and does on slow ones: it must not be deprioritized
// and have to share with the busy ones. A deprioritized sandbox gets less than its demand
// although CPUs are idle: others preempt it again and again, and Linux rarely migrates it.
type cpuMonitor struct {
	last          cpuSample
	used          float64   // CPUs, between the last two samples; negative if unknown
	spanStart     cpuSample // start of the span
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

// cpuSample is the CPU time used up to a moment, the idle time of all CPUs, and the number of
// requests from clients.
type cpuSample struct {
	at        time.Time // zero: no sample
	cpu, idle time.Duration
	requests  uint64
}

// since returns how many CPUs were used between the samples, and how many were idle; 0 if
// unknown.
func (u cpuSample) since(then cpuSample) (used, idle float64) {
	past := u.at.Sub(then.at).Seconds()
	if then.at.IsZero() || past <= 0 {
		return 0, 0
	}
	return (u.cpu - then.cpu).Seconds() / past, (u.idle - then.idle).Seconds() / past
}

// explained returns how many CPUs the requests between the samples explain; 0 if unknown.
func (u cpuSample) explained(then cpuSample) float64 {
	past := u.at.Sub(then.at)
	if then.at.IsZero() || past <= 0 {
		return 0
	}
	return (time.Duration(u.requests-then.requests) * requestCPU).Seconds() / past.Seconds()
}

// sampleCPU measures what the sandbox has used since the last sample, if it runs. now has the
// machine's part.
func (sb *hostSandbox) sampleCPU(now cpuSample) {
	inst, ok := sb.instance().(driver.Deprioritizer)
	if !ok || sb.cpu.exempt {
		return
	}
	if sb.suspended() {
		sb.cpu.reset()
		return
	}
	var err error
	if now.cpu, err = inst.CPUTime(); err != nil {
		sb.exempt(err)
		return
	}
	now.requests = sb.requests.Load()
	sb.cpu.sample(now)
}

// applyCPU deprioritizes or restores the sandbox. A deprioritized one is set on each call, since
// a pause resets it. left and must are those of cpuMonitor.decide.
func (sb *hostSandbox) applyCPU(now time.Time, left, must bool) {
	inst, ok := sb.instance().(driver.Deprioritizer)
	if !ok || sb.cpu.exempt || sb.suspended() || !sb.cpu.decide(now, left, must) {
		return
	}
	if err := inst.SetDeprioritized(sb.cpu.deprioritized); err != nil {
		sb.exempt(err)
	}
}

// deprioritized reports whether the sandbox is deprioritized now.
func (sb *hostSandbox) deprioritized() bool { return sb.cpu.deprioritized && !sb.suspended() }

// exempt leaves the sandbox as it is: what fails here is not retried.
func (sb *hostSandbox) exempt(err error) {
	sb.cpu.reset()
	sb.cpu.exempt, sb.cpu.deprioritized = true, false
	if !kind.Is(err, kind.Unimplemented) && !kind.Is(err, kind.Unavailable) {
		sb.h.slog.Warn("deprioritize sandbox failed", "sandbox", sb.id, "err", err)
	}
}

// reset drops the samples of a paused sandbox: they say nothing about later.
func (u *cpuMonitor) reset() {
	u.last, u.used = cpuSample{}, -1
	u.beginSpan(cpuSample{})
}

// beginSpan starts a span.
func (u *cpuMonitor) beginSpan(now cpuSample) {
	u.spanStart, u.spanUsed, u.spanIdle, u.spanExplained = now, -1, 0, 0
}

func (u *cpuMonitor) sample(now cpuSample) {
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
func (u *cpuMonitor) serving() bool {
	used, _ := u.last.since(u.spanStart)
	return u.spanUsed >= 0 && u.spanUsed <= u.spanExplained || used > 0 && used <= u.last.explained(u.spanStart)
}

// saturates reports whether the sandbox alone may saturate the CPUs. all is the number of CPUs
// that all sandboxes used.
func (u *cpuMonitor) saturates(all float64) bool {
	return u.used >= fullCPU || u.used >= busyCPU && all-u.used >= starvedCPU
}

// decide sets deprioritized and reports whether it must be applied. left: there were idle CPUs.
// must: deprioritize the sandbox whatever its demand.
func (u *cpuMonitor) decide(now time.Time, left, must bool) (apply bool) {
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
