package events

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/mux"
)

// SweepPartsOlder is SweepParts with another age.
func (v *View) SweepPartsOlder(ctx context.Context, age time.Duration) (int, error) {
	return v.sweepParts(ctx, age)
}

// SweepSandboxesOlder is SweepRecords of sandboxes with another age.
func (v *View) SweepSandboxesOlder(ctx context.Context, age time.Duration) (int, error) {
	return v.sweepSandboxes(ctx, age)
}

// SweepSnapshotsOlder is SweepRecords of snapshots with another age.
func (v *View) SweepSnapshotsOlder(ctx context.Context, age time.Duration) (int, error) {
	return v.snapshots.sweepOlder(ctx, age)
}

// SweepVolumesOlder is SweepRecords of volumes with another age.
func (v *View) SweepVolumesOlder(ctx context.Context, age time.Duration) (int, error) {
	return v.volumes.sweepOlder(ctx, age)
}

// SweepSecretsOlder is SweepRecords of secrets with another age.
func (v *View) SweepSecretsOlder(ctx context.Context, age time.Duration) (int, error) {
	return v.secrets.sweepOlder(ctx, age)
}

// HurryTunnels divides the timeouts of tunnels by times. It must be called at both ends,
// before the first tunnel.
func (l *Log) HurryTunnels(times time.Duration) {
	l.times.hello /= times
	l.times.ping /= times
}

// Hurry calls HurryTunnels.
func (t *Tunnels) Hurry(times time.Duration) {
	t.l.times.hello /= times
	t.l.times.ping /= times
}

// TunnelHearsAfter returns the error that one end of a tunnel gets when the other end
// closes, after a message that was stored, or after one that was abandoned.
func (l *Log) TunnelHearsAfter(ctx context.Context, name string, stored bool) error {
	w := tunnelWriter{t: l.newTunnel(name+tunnelDown, name+tunnelUp, mux.Config{})}
	if err := w.put(ctx); err != nil {
		return err
	}
	given, cancel := context.WithCancel(ctx)
	if !stored {
		cancel()
	}
	defer cancel()
	if err := w.put(given); (err == nil) != stored {
		return err
	}
	w.unsure = true // even if it was stored, as if its ack were lost
	w.close()
	return l.newTunnel(name+tunnelUp, name+tunnelDown, mux.Config{Even: true, Accept: func(*mux.Stream) {}}).receive(ctx)
}

// Forget calls forget.
func (v *View) Forget(before time.Time) { v.forget(before) }

// TunnelMux returns the Mux of a tunnel's end.
func TunnelMux(cfg mux.Config) *mux.Mux { return new(tunneling).newTunnel("", "", cfg).mux }

// Reach creates the tunnel to a host if necessary.
func (t *Tunnels) Reach(ctx context.Context, host string) error {
	_, err := t.tunnelTo(ctx, host, 1)
	return err
}
