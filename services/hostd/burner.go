package hostd

import (
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

const (
	much       = 0.70                  // of a CPU, over a span: who uses that computes all the time, unless he serves, and
	half       = 0.50                  // who uses less than that, with
	plenty     = 0.60                  // of a CPU that rested, wants no more
	span       = 2 * time.Second       // for so long who starts a command after the other keeps no CPU
	each       = 50 * time.Millisecond // of a CPU for each thing that he is asked for: who uses no more serves
	nothing    = 0.30                  // of a CPU: less is nothing; who uses much then is the first to yield,
	whole      = 0.97                  // or who uses that, whatever the others use
	shortLooks = 2                     // until it is sure that there is nothing left
	little     = 0.10                  // of a CPU: who yields and gets no more, with nothing left,
	leanLooks  = 3                     // for so many looks
	sharePause = time.Second           // is an equal again for that long
)

// burner tells who computes all the time, without being asked. What a sandbox uses while
// nobody hinders it is what it wants: one that serves, in which a client starts one command
// after the other, may well use all of a CPU, and does where CPUs are slow. It must not be
// taken for who spins, with whom it would have to share then. Who yields gets less than he
// wants though CPUs rest: others take his again and again, and Linux hardly looks for
// another one for him.
type burner struct {
	last   use
	used   float64   // CPUs, between the last two looks; below 0 if that is not known
	from   use       // when the span began
	over   float64   // CPUs, over the last span; below 0 if that is not known
	rested float64   // CPUs that had nothing to do, over the last span
	asked  float64   // CPUs that what it was asked for explains, over the last span
	wanted float64   // CPUs that it used when it began to yield
	lean   int       // so many looks found that it yields and gets little
	equal  time.Time // until then it does not yield
	told   bool      // what follows holds; else it is of an earlier life
	yields bool
	exempt bool // it cannot yield
}

// use is what had been used at a time, for how long CPUs had had nothing to do, and how
// many things clients had asked of the sandbox.
type use struct {
	at        time.Time // zero: it says nothing about now
	cpu, idle time.Duration
	asked     uint64
}

// since is how many CPUs were used from then on, and how many rested; 0 if that is not known.
func (u use) since(then use) (used, rested float64) {
	past := u.at.Sub(then.at).Seconds()
	if then.at.IsZero() || past <= 0 {
		return 0, 0
	}
	return (u.cpu - then.cpu).Seconds() / past, (u.idle - then.idle).Seconds() / past
}

// asks is how many CPUs are explained by what was asked for from then on; 0 if that is not
// known.
func (u use) asks(then use) float64 {
	past := u.at.Sub(then.at)
	if then.at.IsZero() || past <= 0 {
		return 0
	}
	return (time.Duration(u.asked-then.asked) * each).Seconds() / past.Seconds()
}

// look measures what the box has used since the last time, if it runs. now says what the
// machine has.
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

// share has the box yield, or not any more. Who yields is told so each time, since a pause
// ends that. left and must are burner.judge's.
func (b *box) share(now time.Time, left, must bool) {
	inst, ok := b.instance().(driver.Yielding)
	if !ok || b.burner.exempt || b.standing() || !b.burner.judge(now, left, must) {
		return
	}
	if err := inst.Yield(b.burner.yields); err != nil {
		b.exempt(err)
	}
}

// yielding reports whether the box leaves CPUs to others now.
func (b *box) yielding() bool { return b.burner.yields && !b.standing() }

// exempt leaves the box as it is: what cannot be done here is not tried again.
func (b *box) exempt(err error) {
	b.burner.forget()
	b.burner.exempt, b.burner.yields = true, false
	if !kind.Is(err, kind.Unimplemented) && !kind.Is(err, kind.Unavailable) {
		b.h.slog.Warn("a sandbox cannot be told to let others go first", "sandbox", b.id, "err", err)
	}
}

// forget is for who stands still: what it used says nothing about later.
func (u *burner) forget() {
	u.last, u.used = use{}, -1
	u.begin(use{})
}

// begin begins a span.
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

// serving reports whether it used no more than what it was asked for explains, over the last
// span or since.
func (u *burner) serving() bool {
	used, _ := u.last.since(u.from)
	return u.over >= 0 && u.over <= u.asked || used > 0 && used <= u.last.asks(u.from)
}

// leavesNothing reports whether it may be who leaves nothing of the CPUs to others. all is
// how many all boxes used.
func (u *burner) leavesNothing(all float64) bool {
	return u.used >= whole || u.used >= much && all-u.used >= little
}

// judge says who yields, and reports whether that is to be told. left: there were CPUs that
// had nothing to do. must: it is to yield whatever it wants.
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
		// What it would use shows only where CPUs rest; what it is asked for, always.
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
