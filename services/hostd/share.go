package hostd

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/tick"
)

const (
	shareEvery = 100 * time.Millisecond // between two looks at all sandboxes,
	shareEach  = time.Millisecond       // and for each of them
	much       = 0.70                   // of a CPU: who uses that lets others go first
	little     = 0.20                   // and who uses less no more
	sharePause = time.Second            // nor for that long after
	tickOn     = 2 * time.Second        // for how long the CPUs tick after the last one who yielded
)

// share has sandboxes that compute all the time let all else go first: the services,
// and sandboxes that mostly wait for something. A spinner leaves no CPU idle: who wakes
// up shares one with all others that do, or waits until the spinner's turn is over;
// but the CPU of who yields is as good as idle. Where others leave nothing to who
// yields, also others than Millrace, he is their equal again before he starves, and
// yields for a tenth of the time at most.
func (h *host) share(ctx context.Context) error {
	ticks := ticks{wanted: tick.Wanted()}
	defer ticks.stop()
	for {
		boxes, yields := h.measured(), false
		for _, b := range boxes {
			b.share(time.Now())
			yields = yields || b.burner.yields && !b.standing()
		}
		if err := ticks.follow(ctx, time.Now(), yields); err != nil {
			h.slog.Warn("the CPUs do not tick more often than the kernel has them", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(shareEvery + time.Duration(len(boxes))*shareEach):
		}
	}
}

// ticks is the program that has the CPUs look more often who is to run.
type ticks struct {
	wanted bool
	of     *tick.Ticker
	until  time.Time
}

// follow starts it when somebody yields, and ends it a while after nobody does any more.
// What cannot be started is not tried again.
func (t *ticks) follow(ctx context.Context, now time.Time, yields bool) (err error) {
	switch {
	case !t.wanted:
	case yields:
		if t.until = now.Add(tickOn); t.of == nil {
			t.of, err = tick.Start(ctx, "/proc/self/exe")
			t.wanted = err == nil
		}
	case now.After(t.until):
		t.stop()
	}
	return err
}

func (t *ticks) stop() {
	if t.of != nil {
		t.of.Stop()
		t.of = nil
	}
}

// share looks at what the box has used since the last time, if it runs. What cannot be
// done here is not tried again.
func (b *box) share(now time.Time) {
	inst, ok := b.inst.(driver.Yielding)
	if !ok || b.burner.exempt {
		return
	}
	if b.standing() {
		b.burner.at = time.Time{}
		return
	}
	cpu, err := inst.Burned()
	if err == nil && b.burner.look(now, cpu) {
		err = inst.Yield(b.burner.yields)
	}
	if err != nil {
		b.burner.exempt = true
		if !kind.Is(err, kind.Unimplemented) && !kind.Is(err, kind.Unavailable) {
			b.h.slog.Warn("a sandbox cannot be told to let others go first", "sandbox", b.id, "err", err)
		}
	}
}

// burner tells who uses much of a CPU.
type burner struct {
	at     time.Time     // of the last look; zero: it says nothing about now
	cpu    time.Duration // that had been used then
	equal  time.Time     // until then it does not yield
	told   bool          // what follows holds; else it is of an earlier life
	yields bool
	exempt bool // it cannot yield
}

// look takes what has been used until now and reports whether yields is to be told: who
// yields is told again each time, since a pause ends that.
func (u *burner) look(now time.Time, cpu time.Duration) bool {
	past, used := now.Sub(u.at).Seconds(), (cpu - u.cpu).Seconds()
	first := u.at.IsZero()
	u.at, u.cpu = now, cpu
	if first || past <= 0 {
		return false
	}
	before := u.yields
	switch {
	case before && used < little*past:
		u.yields, u.equal = false, now.Add(sharePause)
	case !before:
		u.yields = used >= much*past && now.After(u.equal)
	}
	tell := before || u.yields || !u.told
	u.told = true
	return tell
}
