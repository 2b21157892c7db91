package tunnel

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/mux"
)

// HurryTunnels divides the timeouts of tunnels by times. It must be called at both ends,
// before the first tunnel.
func (l *Transport) HurryTunnels(times time.Duration) {
	l.times.hello /= times
	l.times.ping /= times
}

// Hurry calls HurryTunnels.
func (t *Dialer) Hurry(times time.Duration) {
	t.l.times.hello /= times
	t.l.times.ping /= times
}

// TunnelHearsAfter returns the error that one end of a tunnel gets when the other end
// closes, after a message that was stored, or after one that was abandoned.
func (l *Transport) TunnelHearsAfter(ctx context.Context, name string, stored bool) error {
	w := writer{t: l.newTunnel(name+down, name+up, mux.Config{})}
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
	return l.newTunnel(name+up, name+down, mux.Config{Even: true, Accept: func(*mux.Stream) {}}).receive(ctx)
}

// TunnelMux returns the Mux of a tunnel's end.
func TunnelMux(cfg mux.Config) *mux.Mux { return new(Transport).newTunnel("", "", cfg).mux }

// Reach creates the tunnel to a host if necessary.
func (t *Dialer) Reach(ctx context.Context, host string) error {
	_, err := t.tunnelTo(ctx, host, 1)
	return err
}
