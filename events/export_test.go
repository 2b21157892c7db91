package events

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/template"
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
	return v.sweepSnapshots(ctx, age)
}

// SweepVolumesOlder is SweepRecords of volumes with another age.
func (v *View) SweepVolumesOlder(ctx context.Context, age time.Duration) (int, error) {
	return v.sweepVolumes(ctx, age)
}

// SweepSecretsOlder is SweepRecords of secrets with another age.
func (v *View) SweepSecretsOlder(ctx context.Context, age time.Duration) (int, error) {
	return v.sweepSecrets(ctx, age)
}

// HasPartOlder is HasPart with another age.
func (l *Log) HasPartOlder(ctx context.Context, sum template.Sum, age time.Duration) (bool, error) {
	return l.hasPart(ctx, string(sum), age)
}

// PartTime is when a part looks to have been stored.
func (l *Log) PartTime(ctx context.Context, sum template.Sum) (time.Time, error) {
	_, info, err := l.whole(ctx, bucketTemplates, string(sum))
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime, nil
}

// HurryTunnels has the ends of tunnels wait for each other so many times less long; both
// must, and before there are any.
func (l *Log) HurryTunnels(times time.Duration) {
	l.tunnels.hello /= times
	l.tunnels.ping /= times
}

// Hurry is HurryTunnels.
func (t *Tunnels) Hurry(times time.Duration) { t.l.HurryTunnels(times) }

// TunnelHearsAfter is what an end of a tunnel hears when the other one goes: after a message
// that was stored or, where it was given up before, was not.
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
	w.unsure = true // where it was stored, as if nobody had told
	w.bye()
	return l.newTunnel(name+tunnelUp, name+tunnelDown, mux.Config{Even: true, Accept: func(*mux.Stream) {}}).receive(ctx)
}

// Forget is forget.
func (v *View) Forget(before time.Time) { v.forget(before) }

// How messages are packed.
var (
	PackBatch   = packBatch
	UnpackBatch = unpackBatch
	ParseBatch  = parseBatch
)

// TunnelMux gives what carries the streams of a tunnel's end.
func TunnelMux(cfg mux.Config) *mux.Mux { return new(Log).newTunnel("", "", cfg).mux }

// Reach makes the tunnel to a host if there is none.
func (t *Tunnels) Reach(ctx context.Context, host string) error {
	_, err := t.to(ctx, host, 1)
	return err
}
