package hostd

import (
	"context"
	"slices"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/sidecar"
)

// offerLate offers the drivers that Auto stands for and that nobody waits for, when
// what they need has been built and they have been tried.
func (h *host) offerLate(ctx context.Context) error {
	if h.cfg.drivers != nil || len(h.cfg.Drivers) > 0 && !slices.Contains(h.cfg.Drivers, Auto) {
		return nil
	}
	if _, err := sidecar.Runsc().Build(ctx, h.slog.Info); err != nil {
		if ctx.Err() == nil {
			h.slog.Info("a driver is not to be had", "driver", "gvisor", "err", err)
		}
		return nil //nolint:nilerr // the host does without
	}
	for _, name := range lateNames {
		if _, ok := h.offer(name); ok {
			continue
		}
		d, err := h.driverFor(name)
		if err != nil {
			continue // another system's
		}
		caps, err := d.Probe(ctx)
		if err != nil {
			h.slog.Info("a driver is not to be had", "driver", name, "err", err)
			continue
		}
		h.mu.Lock()
		if h.drivers = append(h.drivers, offer{d, caps}); preferred(name) {
			h.drivers = slices.Insert(h.drivers[:len(h.drivers)-1], 0, offer{d, caps})
		}
		h.mu.Unlock()
		h.slog.Info("a driver is ready", "driver", name, "isolation", caps.Isolation)
		h.outdated()
	}
	return nil
}

// buildNamed builds what a driver needs that was asked for by name: who did so
// waits for it, and is told how far it is.
func (h *host) buildNamed(ctx context.Context) error {
	if h.cfg.drivers != nil || !slices.Contains(h.cfg.Drivers, "gvisor") {
		return nil
	}
	_, err := sidecar.Runsc().Build(ctx, h.slog.Warn)
	return kind.Wrap(kind.Unavailable, "build", "gvisor", err)
}

// preferred reports whether a driver is to be the default as soon as it is ready: a
// stronger one whose program was installed with this one.
func preferred(name string) bool { return name == "gvisor" && sidecar.Runsc().Beside() }

// offers are the drivers that can be had at the moment.
func (h *host) offers() []offer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.drivers)
}

// outdated has the lease renewed at once.
func (h *host) outdated() {
	select {
	case h.renew <- struct{}{}:
	default: // it is about to be
	}
}
