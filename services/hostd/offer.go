package hostd

import (
	"context"
	"os"
	"slices"
	"time"
)

// openDrivers creates the drivers and probes them.
func (h *host) openDrivers(ctx context.Context) error {
	if err := h.buildNamed(ctx); err != nil {
		return err
	}
	all, err := openDrivers(ctx, &h.cfg)
	if err != nil {
		return err
	}
	h.setOffers(all)
	return h.storeOffers(all)
}

// setOffers offers the drivers that a run starts with.
func (h *host) setOffers(all []offer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drivers = all
	close(h.driversOpened)
}

// storeOffers stores what the drivers can do, for the next run.
func (h *host) storeOffers(all []offer) error {
	h.verified = all
	return h.journal.setOffered(h.offered(all))
}

// offered returns the drivers' capabilities as the journal has them.
func (h *host) offered(all []offer) *offered {
	o := &offered{Boot: bootID(), Version: h.cfg.Version, UID: os.Geteuid(), Asked: h.cfg.Drivers}
	for _, d := range all {
		o.Drivers = append(o.Drivers, offeredDriver{d.Name(), d.caps})
	}
	return o
}

// restoreOffers offers the drivers that the journal has from a previous run under the same
// conditions, when that left sandboxes; they are verified after those are adopted. Probing takes
// from some 10 ms to seconds per driver.
func (h *host) restoreOffers() {
	if h.cfg.drivers != nil {
		return
	}
	was, err := h.journal.offered()
	now := h.offered(nil)
	if err != nil || now.Boot == "" || was.Boot != now.Boot || was.Version != now.Version || was.UID != now.UID ||
		!slices.Equal(was.Asked, now.Asked) || len(was.Drivers) == 0 {
		return
	}
	var all []offer
	for _, o := range was.Drivers {
		d, err := makeDriver(o.Name, &h.cfg)
		if err != nil {
			return
		}
		all = append(all, offer{d, o.Caps})
	}
	h.unverified = true
	h.setOffers(all)
}

// settleDrivers probes the drivers that were not probed yet.
func (h *host) settleDrivers(ctx context.Context) error {
	defer close(h.driversSettled)
	if err := h.prove(ctx); err != nil {
		return err
	}
	return h.offerLate(ctx)
}

// proveAfter leaves the machine to the adoption of sandboxes and their output.
const proveAfter = 2 * time.Second

// prove probes drivers whose capabilities came from the journal. A host whose drivers all fail
// ends, as it would have ended at its start; other changes count from the next run on.
func (h *host) prove(ctx context.Context) error {
	if !h.unverified || !sleep(ctx, proveAfter) {
		return nil
	}
	apart := h.cfg
	apart.opened = nil // the run's drivers are in use
	all, err := openDrivers(ctx, &apart)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // ctx ended
	}
	if err != nil {
		return err
	}
	return h.storeOffers(all)
}

// awaitOffer returns a driver by name; the empty name is the default. It waits for drivers that
// are not open yet: sandboxes are adopted before their drivers are.
func (h *host) awaitOffer(ctx context.Context, name string) (offer, bool) {
	for _, known := range []chan struct{}{h.driversOpened, h.driversSettled} {
		select {
		case <-known:
		case <-ctx.Done():
		}
		if o, ok := h.offer(name); ok || name != lateName {
			return o, ok
		}
	}
	return offer{}, false
}
