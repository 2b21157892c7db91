package cpushare

import (
	"context"
	"log/slog"
	"time"

	"github.com/millrace/millrace/internal/cpustat"
	"github.com/millrace/millrace/services/hostd/internal/schedtick"
)

const (
	shareEvery = 100 * time.Millisecond // between two samples of all sandboxes,
	shareEach  = time.Millisecond       // and in addition for each of them
)

// Run deprioritizes members that compute all the time against the services and sandboxes that
// sometimes wait. A busy loop leaves no CPU idle: a process that wakes up shares a CPU with all
// others that are busy, or waits for the end of a time slice; but a deprioritized sandbox's CPU
// is as good as idle. If other programs leave nothing to a deprioritized sandbox, it is restored
// before it starves, and deprioritized for a quarter of the time at most.
func Run(ctx context.Context, members func() []*Member, log *slog.Logger) error {
	ticks := ticks{wanted: schedtick.Needed()}
	defer ticks.stop()
	var b balancer
	for {
		all, now := members(), time.Now()
		times, _ := cpustat.Read()
		deprioritized := b.apply(all, sample{at: now, idle: times.Idle})
		if err := ticks.follow(ctx, now, deprioritized); err != nil {
			log.Warn("start scheduler ticker failed", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(shareEvery + time.Duration(len(all))*shareEach):
		}
	}
}

// balancer is the state of Run between two samples.
type balancer struct {
	last      sample // of the machine
	saturated int    // consecutive samples with saturated CPUs
}

// apply samples the sandboxes, deprioritizes and restores them, and reports whether any is
// deprioritized. If none is and the CPUs are saturated, it deprioritizes the one that uses the
// most and does not serve: it may be all that saturates them, and the demand of the others
// shows then. A sandbox that uses less than a CPU while no other one has demand is left alone:
// other programs than sandboxes saturate the CPUs for a moment, and it would be equal to a busy
// loop that starts then.
func (b *balancer) apply(members []*Member, now sample) (deprioritized bool) {
	_, idle := now.since(b.last)
	b.last = now
	var most *Member
	var all float64 // CPUs used by all sandboxes
	for _, m := range members {
		m.sample(now)
		deprioritized = deprioritized || m.deprioritized()
		all += max(m.monitor.used, 0)
		if !m.monitor.serving() && (most == nil || m.monitor.used > most.monitor.used) {
			most = m
		}
	}
	if b.saturated++; deprioritized || idle >= saturatedIdle {
		b.saturated = 0
	}
	deprioritized = false
	for _, m := range members {
		must := m == most && b.saturated >= saturatedSamples && m.monitor.saturates(all)
		m.apply(now.at, idle >= saturatedIdle, must)
		deprioritized = deprioritized || m.deprioritized()
	}
	return deprioritized
}
