package hostd

import (
	"context"
	"slices"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/helperbin"
)

// LateDriver returns the driver that a host with these driver names offers only after its start,
// once its dependencies are built and it was probed; empty without such a driver. The error
// reports why it cannot be built on this machine.
func LateDriver(names []string) (driver string, err error) {
	if !offersLate(names) {
		return "", nil
	}
	return lateName, helperbin.Runsc().Check()
}

func offersLate(names []string) bool {
	return len(names) == 0 || slices.Contains(names, Auto) && !slices.Contains(names, lateName)
}

// offerLate offers the driver of Auto that startup does not wait for, once its dependencies are
// built and it was probed. From then on it is the default, unless another one was named before
// Auto.
func (h *host) offerLate(ctx context.Context) error {
	names := h.cfg.Drivers
	if h.cfg.drivers != nil || !offersLate(names) {
		return nil
	}
	first := len(names) == 0 || names[0] == Auto
	o, err := h.openLate(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // ctx ended
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.renewLease()
	if err != nil { // the host continues without it, even if it was restored from the journal
		h.slog.Warn("driver unavailable, using the other drivers", "driver", lateName, "err", err)
		h.drivers = without(h.drivers, lateName)
		return nil
	}
	h.slog.Info("driver available", "driver", lateName, "isolation", o.caps.Isolation, "default", first)
	h.drivers = with(h.drivers, o, first)
	return h.storeOffers(with(h.verified, o, first))
}

// with returns all with o added or replaced, at the start or the end.
func with(all []offer, o offer, first bool) []offer {
	all = without(all, o.Name())
	if first {
		return slices.Insert(all, 0, o)
	}
	return append(all, o)
}

func without(all []offer, name string) []offer {
	return slices.DeleteFunc(slices.Clone(all), func(o offer) bool { return o.Name() == name })
}

// openLate builds the dependencies of the late driver and probes it.
func (h *host) openLate(ctx context.Context) (offer, error) {
	if _, err := helperbin.Runsc().Build(ctx, h.slog.Warn); err != nil {
		return offer{}, err
	}
	d, err := h.driverFor(lateName)
	if err != nil {
		return offer{}, err
	}
	caps, err := d.Probe(ctx)
	return offer{d, caps}, err
}

// machineName is the driver whose guests boot with the small shim, and with no other that is
// dynamically linked.
const machineName = "microvm"

// buildNamed builds the dependencies of explicitly named drivers before the host starts: their
// operator waits for them, and reads the progress.
func (h *host) buildNamed(ctx context.Context) error {
	if h.cfg.drivers != nil {
		return nil
	}
	if slices.Contains(h.cfg.Drivers, machineName) {
		if err := h.buildShim(ctx); err != nil {
			return err
		}
	}
	if !slices.Contains(h.cfg.Drivers, lateName) {
		return nil
	}
	_, err := helperbin.Runsc().Build(ctx, h.slog.Warn)
	return kind.Wrap(kind.Unavailable, "build", lateName, err)
}

// offers returns the drivers that are available now.
func (h *host) offers() []offer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.drivers)
}

// renewLease has the lease renewed at once.
func (h *host) renewLease() {
	select {
	case h.leaseStale <- struct{}{}:
	default: // a renewal is pending
	}
}
