package hostd

import (
	"context"
	"crypto/rand"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/lease"
)

// Serve runs a host until ctx ends. A run that was fenced is followed by the next
// one, with a new epoch: a machine does not stay without its host because it was
// declared gone, as after a long sleep, or because its lease was taken.
//
// While another host of the same name renews the lease, Serve waits: two hosts
// that fence each other in turn would end each other's sandboxes.
func Serve(ctx context.Context, cfg Config) error {
	cfg.metrics = newMetrics(&cfg)
	for {
		cfg.instance = rand.Text()
		err := Run(ctx, cfg)
		if !kind.Is(err, kind.Fenced) || ctx.Err() != nil {
			return err
		}
		cfg.metrics.Fenced.Inc()
		if err := lease.Await(ctx, cfg.Log, cfg.Name, cfg.instance, err, cfg.Slog); err != nil {
			return err
		}
	}
}

// newLeases returns the holder of the host's leases. Its drivers must be there.
func (h *host) newLeases() *lease.Holder {
	return lease.New(lease.Config{
		Host: h.cfg.Name, Instance: h.cfg.instance, Version: h.cfg.Version, TTL: h.cfg.LeaseTTL, Capacity: h.cfg.Capacity,
		DataDir: h.cfg.DataDir, System: h.traits.system, CPU: h.traits.cpu, Log: h.log, Journal: h.journal, Drivers: h.drivers,
		Counts: h.sandboxes.Counts, Templates: h.templateNames, Slog: h.slog,
	})
}
