package cpushare

import (
	"context"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/schedtick"
)

// tickOn is the time for which the ticker runs after the last sandbox was restored.
const tickOn = 2 * time.Second

// ticks controls the program that makes the scheduler run more often on each CPU.
type ticks struct {
	wanted bool
	ticker *schedtick.Ticker
	until  time.Time
}

// follow starts the ticker when a sandbox is deprioritized, and stops it a while after none is
// any more. A start that fails is not repeated.
func (t *ticks) follow(ctx context.Context, now time.Time, deprioritized bool) (err error) {
	switch {
	case !t.wanted:
	case deprioritized:
		if t.until = now.Add(tickOn); t.ticker == nil {
			t.ticker, err = schedtick.Start(ctx, "/proc/self/exe")
			t.wanted = err == nil
		}
	case now.After(t.until):
		t.stop()
	}
	return err
}

func (t *ticks) stop() {
	if t.ticker != nil {
		t.ticker.Stop()
		t.ticker = nil
	}
}
