package lease

import (
	"context"
	"log/slog"
	"time"

	"github.com/millrace/millrace/events"
)

// poll is how often the lease of another host is read while its end is awaited.
const poll = 500 * time.Millisecond

// Await returns when the next run of a host may take the lease: at once if it is the
// given run's or says that the host is gone, otherwise when its owner has not renewed it
// for its TTL. It returns nil when ctx ends.
func Await(ctx context.Context, log *events.Log, host, instance string, why error, slog *slog.Logger) error {
	t := time.NewTicker(poll)
	defer t.Stop()
	var rev uint64
	var renewed time.Time
	for {
		lease, now, ok, err := log.Lease(ctx, host)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !ok || lease.Gone || lease.Instance == instance:
			slog.Warn("host was fenced, restarting it with a new epoch", "host", host, "err", why)
			return nil
		case renewed.IsZero():
			slog.Error("another host has this host's name, waiting until its lease ends", "host", host, "epoch", lease.Epoch, "version", lease.Version)
		}
		if now != rev {
			rev, renewed = now, time.Now()
		}
		if time.Since(renewed) > lease.TTL {
			slog.Warn("the other host's lease ended, restarting this host with a new epoch", "host", host)
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}
