package hostd

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/cpustat"
	"github.com/millrace/millrace/services/hostd/internal/tick"
)

const (
	shareEvery = 100 * time.Millisecond // between two looks at all sandboxes,
	shareEach  = time.Millisecond       // and for each of them
	tickOn     = 2 * time.Second        // for how long the CPUs tick after the last one who yielded
)

// share has sandboxes that compute all the time let all else go first: the services,
// and sandboxes that now and then wait for something. A spinner leaves no CPU idle: who
// wakes up shares one with all others that do, or waits until the spinner's turn is over;
// but the CPU of who yields is as good as idle. Where others leave nothing to who
// yields, also others than Millrace, he is their equal again before he starves, and
// yields for a quarter of the time at most.
func (h *host) share(ctx context.Context) error {
	ticks := ticks{wanted: tick.Wanted()}
	defer ticks.stop()
	var turn turn
	for {
		boxes, now := h.measured(), time.Now()
		times, _ := cpustat.Read() //nolint:errcheck // no CPU rests then
		yields := turn.take(boxes, use{at: now, idle: times.Idle})
		if err := ticks.follow(ctx, now, yields); err != nil {
			h.slog.Warn("the CPUs do not tick more often than the kernel has them", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(shareEvery + time.Duration(len(boxes))*shareEach):
		}
	}
}

// turn is one look after the other at all sandboxes of a host.
type turn struct {
	last  use // of the machine
	short int // so many looks found no CPU for anybody else
}

// take looks at the boxes, tells them who yields, and reports whether anybody does. Where
// nobody does and nearly nothing is left of the CPUs, who uses most and serves nobody has to:
// he alone may be who leaves nothing, and what each of the rest wants shows when he yields. Who uses less
// than a CPU, with no other box that wants any, is not: those are others than boxes, for a
// moment, and who yields then would be the equal of a spinner that comes.
func (t *turn) take(boxes []*box, now use) (yields bool) {
	_, rested := now.since(t.last)
	t.last = now
	var most *box
	var all float64 // CPUs that boxes used
	for _, b := range boxes {
		b.look(now)
		yields = yields || b.yielding()
		all += max(b.burner.used, 0)
		if !b.burner.serving() && (most == nil || b.burner.used > most.burner.used) {
			most = b
		}
	}
	if t.short++; yields || rested >= nothing {
		t.short = 0
	}
	yields = false
	for _, b := range boxes {
		must := b == most && t.short >= shortLooks && b.burner.leavesNothing(all)
		b.share(now.at, rested >= nothing, must)
		yields = yields || b.yielding()
	}
	return yields
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
