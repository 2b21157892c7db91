package hostd

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/cpustat"
	"github.com/millrace/millrace/services/hostd/internal/schedtick"
)

const (
	shareEvery = 100 * time.Millisecond // between two samples of all sandboxes,
	shareEach  = time.Millisecond       // and in addition for each of them
	tickOn     = 2 * time.Second        // the time for which the ticker runs after the last sandbox was restored
)

// share deprioritizes sandboxes that compute all the time against the services and sandboxes that
// sometimes wait. A busy loop leaves no CPU idle: a process that wakes up shares a CPU with all
// others that are busy, or waits for the end of a time slice; but a deprioritized sandbox's CPU
// is as good as idle. If other programs leave nothing to a deprioritized sandbox, it is restored
// before it starves, and deprioritized for a quarter of the time at most.
func (h *host) share(ctx context.Context) error {
	ticks := ticks{wanted: schedtick.Needed()}
	defer ticks.stop()
	var balancer cpuBalancer
	for {
		sandboxes, now := h.measured(), time.Now()
		times, _ := cpustat.Read() //nolint:errcheck // without it no CPU counts as idle
		deprioritized := balancer.apply(sandboxes, cpuSample{at: now, idle: times.Idle})
		if err := ticks.follow(ctx, now, deprioritized); err != nil {
			h.slog.Warn("start scheduler ticker failed", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(shareEvery + time.Duration(len(sandboxes))*shareEach):
		}
	}
}

// cpuBalancer is the state of share between two samples.
type cpuBalancer struct {
	last      cpuSample // of the machine
	saturated int       // consecutive samples with saturated CPUs
}

// apply samples the sandboxes, deprioritizes and restores them, and reports whether any is
// deprioritized. If none is and the CPUs are saturated, it deprioritizes the one that uses the
// most and does not serve: it may be all that saturates them, and the demand of the others
// shows then. A sandbox that uses less than a CPU while no other one has demand is left alone:
// other programs than sandboxes saturate the CPUs for a moment, and it would be equal to a busy
// loop that starts then.
func (t *cpuBalancer) apply(sandboxes []*hostSandbox, now cpuSample) (deprioritized bool) {
	_, idle := now.since(t.last)
	t.last = now
	var most *hostSandbox
	var all float64 // CPUs used by all sandboxes
	for _, sb := range sandboxes {
		sb.sampleCPU(now)
		deprioritized = deprioritized || sb.deprioritized()
		all += max(sb.cpu.used, 0)
		if !sb.cpu.serving() && (most == nil || sb.cpu.used > most.cpu.used) {
			most = sb
		}
	}
	if t.saturated++; deprioritized || idle >= saturatedIdle {
		t.saturated = 0
	}
	deprioritized = false
	for _, sb := range sandboxes {
		must := sb == most && t.saturated >= saturatedSamples && sb.cpu.saturates(all)
		sb.applyCPU(now.at, idle >= saturatedIdle, must)
		deprioritized = deprioritized || sb.deprioritized()
	}
	return deprioritized
}

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
