package sandboxes

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/cpushare"
)

const (
	measureTimeout = time.Second // per sandbox
	maxMeasures    = 8
)

// Measure records the usage of each sandbox from time to time. A sample that fails is left out:
// the next one has the totals.
func (set *Set) Measure(ctx context.Context) error {
	t := time.NewTicker(set.cfg.SampleEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		var g errgroup.Group
		g.SetLimit(maxMeasures)
		for _, sb := range set.measured() {
			g.Go(func() error { sb.measure(ctx); return nil })
		}
		g.Wait() //nolint:errcheck // none fails
	}
}

// measured returns the sandboxes that run.
func (set *Set) measured() []*hostSandbox {
	var out []*hostSandbox
	for _, sb := range set.all() {
		select {
		case <-sb.session.Ready():
			out = append(out, sb)
		default: // it is being created, or has been paused since before this run
		}
	}
	return out
}

// CPUMembers returns the running sandboxes as members that share the CPUs.
func (set *Set) CPUMembers() []*cpushare.Member {
	var all []*cpushare.Member
	for _, sb := range set.measured() {
		all = append(all, sb.cpu)
	}
	return all
}

// measure records a sample of the sandbox. A paused one uses nothing new.
func (sb *hostSandbox) measure(ctx context.Context) {
	if sb.current.Instance() == nil || sb.pausing.suspended() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	s, err := sb.current.Instance().Stats(ctx)
	if err == nil {
		if err = sb.meter.measure(ctx, time.Now(), s.CPU); kind.Is(err, kind.Conflict) { // the next one reads the fact
			err = nil
		}
	}
	if err == nil {
		err = sb.cfg.Log.PutSample(ctx, sb.cfg.Host, sb.id, catalog.Sample{
			Time: time.Now(), CPU: s.CPU, MemoryBytes: s.MemoryBytes, DiskBytes: s.DiskBytes, Processes: s.Processes,
		})
	}
	if err != nil && ctx.Err() == nil && !kind.Is(err, kind.Unavailable) && !kind.Is(err, kind.Unimplemented) {
		sb.cfg.Slog.Warn("measure sandbox failed", "sandbox", sb.id, "err", err)
	}
}
