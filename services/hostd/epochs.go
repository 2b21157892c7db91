package hostd

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// leasePoll is how often the lease of another host is read while its end is awaited.
const leasePoll = 500 * time.Millisecond

// Serve runs a host until ctx ends. A run that was fenced is followed by the next
// one, with a new epoch: a machine does not stay without its host because it was
// declared gone, as after a long sleep, or because its lease was taken.
//
// While another host of the same name renews the lease, Serve waits: two hosts
// that fence each other in turn would end each other's sandboxes.
func Serve(ctx context.Context, cfg Config) error {
	for {
		cfg.instance = rand.Text()
		err := Run(ctx, cfg)
		if !kind.Is(err, kind.Fenced) || ctx.Err() != nil {
			return err
		}
		if err := awaitLease(ctx, &cfg, err); err != nil {
			return err
		}
	}
}

// awaitLease returns when the next run may take the lease: at once if it is this
// host's or says that the host is gone, otherwise when its owner has not renewed it
// for its TTL. It returns nil when ctx ends.
func awaitLease(ctx context.Context, cfg *Config, why error) error {
	t := time.NewTicker(leasePoll)
	defer t.Stop()
	var rev uint64
	var renewed time.Time
	for {
		lease, now, ok, err := cfg.Log.Lease(ctx, cfg.Name)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !ok || lease.Gone || lease.Instance == cfg.instance:
			cfg.Slog.Warn("host was fenced, restarting it with a new epoch", "host", cfg.Name, "err", why)
			return nil
		case renewed.IsZero():
			cfg.Slog.Error("another host has this host's name, waiting until its lease ends", "host", cfg.Name, "epoch", lease.Epoch, "version", lease.Version)
		}
		if now != rev {
			rev, renewed = now, time.Now()
		}
		if time.Since(renewed) > lease.TTL {
			cfg.Slog.Warn("the other host's lease ended, restarting this host with a new epoch", "host", cfg.Name)
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}
