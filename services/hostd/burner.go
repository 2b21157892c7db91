package hostd

import (
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

const (
	much       = 0.70                  // of a CPU, over a span: a sandbox that uses more is busy all the time, unless it serves requests
	half       = 0.50                  // of a CPU: a deprioritized sandbox that uses less, with
	plenty     = 0.60                  // of a CPU idle, is restored
	span       = 2 * time.Second       // a sandbox that runs one command after another for less than this is not busy
	each       = 50 * time.Millisecond // of a CPU per request: a sandbox that uses no more serves
	nothing    = 0.30                  // of a CPU idle: with less, the CPUs are saturated, and a busy sandbox is deprioritized at once,
	whole      = 0.97                  // or one that uses this much, whatever the others use
	shortLooks = 2                     // samples until saturation is certain
	little     = 0.10                  // of a CPU: a deprioritized sandbox that gets less on saturated CPUs,
	leanLooks  = 3                     // for this many samples,
	sharePause = time.Second           // is restored for this long
)

// cpuMonitor detects sandboxes that compute all the time without requests. What a sandbox uses
// while CPUs are idle is its demand. One that serves, in which a client starts one command
// after another, may well use all of a CPU, and does on slow ones: it must not be deprioritized
// and have to share with the busy ones. A deprioritized sandbox gets less than its demand
// although CPUs are idle: others preempt it again and again, and Linux rarely migrates it.
type burner struct {
	last   use
	used   float64   // CPUs, between the last two samples; negative if unknown
	from   use       // start of the span
	over   float64   // CPUs, over the last span; negative if unknown
	rested float64   // idle CPUs, over the last span
	asked  float64   // CPUs that the requests of the last span explain
	wanted float64   // CPUs that it used when it was deprioritized
	lean   int       // consecutive samples in which it was starved
	equal  time.Time // until then it is not deprioritized
	told   bool      // the next field was applied in this run
	yields bool
	exempt bool // it cannot be deprioritized
}

// cpuSample is the CPU time used up to a moment, the idle time of all CPUs, and the number of
// requests from clients.
type use struct {
	at        time.Time // zero: no sample
	cpu, idle time.Duration
	asked     uint64
}

// since returns how many CPUs were used between the samples, and how many were idle; 0 if
// unknown.
func (u use) since(then use) (used, rested float64) {
	past := u.at.Sub(then.at).Seconds()
	if then.at.IsZero() || past <= 0 {
		return 0, 0
	}
	return (u.cpu - then.cpu).Seconds() / past, (u.idle - then.idle).Seconds() / past
}

// explained returns how many CPUs the requests between the samples explain; 0 if unknown.
func (u use) asks(then use) float64 {
	past := u.at.Sub(then.at)
	if then.at.IsZero() || past <= 0 {
		return 0
	}
	return (time.Duration(u.asked-then.asked) * each).Seconds() / past.Seconds()
}

// sampleCPU measures what the sandbox has used since the last sample, if it runs. now has the
// machine's part.
func (b *box) look(now use) {
	inst, ok := b.instance().(driver.Yielding)
	if !ok || b.burner.exempt {
		return
	}
	if b.standing() {
		b.burner.forget()
		return
	}
	var err error
	if now.cpu, err = inst.Burned(); err != nil {
		b.exempt(err)
		return
	}
	now.asked = b.asks.Load()
	b.burner.look(now)
}

// applyCPU deprioritizes or restores the sandbox. A deprioritized one is set on each call, since
// a pause resets it. left and must are those of cpuMonitor.decide.
func (b *box) share(now time.Time, left, must bool) {
	inst, ok := b.instance().(driver.Yielding)
	if !ok || b.burner.exempt || b.standing() || !b.burner.judge(now, left, must) {
		return
	}
	if err := inst.Yield(b.burner.yields); err != nil {
		b.exempt(err)
	}
}

// deprioritized reports whether the sandbox is deprioritized now.
func (b *box) yielding() bool { return b.burner.yields && !b.standing() }

// exempt leaves the sandbox as it is: what fails here is not retried.
func (b *box) exempt(err error) {
	b.burner.forget()
	b.burner.exempt, b.burner.yields = true, false
	if !kind.Is(err, kind.Unimplemented) && !kind.Is(err, kind.Unavailable) {
		b.h.slog.Warn("deprioritize sandbox failed", "sandbox", b.id, "err", err)
	}
}

// reset drops the samples of a paused sandbox: they say nothing about later.
func (u *burner) forget() {
	u.last, u.used = use{}, -1
	u.begin(use{})
}

// beginSpan starts a span.
func (u *burner) begin(now use) { u.from, u.over, u.rested, u.asked = now, -1, 0, 0 }

func (u *burner) look(now use) {
	if u.last.at.IsZero() {
		u.forget()
		u.begin(now)
	} else {
		u.used, _ = now.since(u.last)
	}
	if u.last = now; now.at.Sub(u.from.at) >= span {
		u.over, u.rested = now.since(u.from)
		u.asked = now.asks(u.from)
		u.from = now
	}
}

// serving reports whether it used no more than its requests explain, over the last span or since.
func (u *burner) serving() bool {
	used, _ := u.last.since(u.from)
	return u.over >= 0 && u.over <= u.asked || used > 0 && used <= u.last.asks(u.from)
}

// saturates reports whether it may be what saturates the CPUs. all is how many CPUs all sandboxes
// used.
func (u *burner) leavesNothing(all float64) bool {
	return u.used >= whole || u.used >= much && all-u.used >= little
}

// decide sets deprioritized and reports whether it must be applied. left: there were idle CPUs.
// must: deprioritize the sandbox whatever its demand.
func (u *burner) judge(now time.Time, left, must bool) (tell bool) {
	before := u.yields
	if u.used < 0 {
		return before
	}
	if u.lean++; !before || left || u.used >= little {
		u.lean = 0
	}
	switch {
	case u.lean >= leanLooks:
		u.yields, u.equal = false, now.Add(sharePause)
	case before:
		// Demand shows only on idle CPUs, requests always.
		u.yields = u.asked < u.wanted && (u.over < 0 || u.over >= half || u.rested < plenty)
	case now.After(u.equal):
		u.yields = must || u.over >= much && u.over > u.asked
	}
	if u.yields != before {
		u.wanted = max(u.over, u.used)
		u.begin(u.last)
	}
	tell = before || u.yields || !u.told
	u.told = true
	return tell
}
