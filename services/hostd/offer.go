package hostd

import (
	"context"
	"os"
	"slices"
	"time"
)

// openDrivers makes the drivers and finds out what they can do.
func (h *host) openDrivers(ctx context.Context) error {
	if err := h.buildNamed(ctx); err != nil {
		return err
	}
	all, err := openDrivers(ctx, &h.cfg)
	if err != nil {
		return err
	}
	h.have(all)
	return h.noteOffers(all)
}

// have offers the drivers that a life begins with.
func (h *host) have(all []offer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drivers = all
	close(h.opened)
}

// noteOffers has the next life remember what drivers can do.
func (h *host) noteOffers(all []offer) error {
	h.proven = all
	return h.journal.setOffered(h.offered(all))
}

// offered is what is remembered of the drivers.
func (h *host) offered(all []offer) *offered {
	o := &offered{Boot: bootID(), Version: h.cfg.Version, UID: os.Geteuid(), Asked: h.cfg.Drivers}
	for _, d := range all {
		o.Drivers = append(o.Drivers, offeredDriver{d.Name(), d.caps})
	}
	return o
}

// remember takes over what an earlier life found out that was like this one and left
// sandboxes; it is proved when those have been attended to. A trial of every driver takes
// from some 10 ms to seconds.
func (h *host) remember() {
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
	h.unproven = true
	h.have(all)
}

// settle finds out what is not known of the drivers yet.
func (h *host) settle(ctx context.Context) error {
	defer close(h.settled)
	if err := h.prove(ctx); err != nil {
		return err
	}
	return h.offerLate(ctx)
}

// proveAfter leaves the machine to those who wait for their output.
const proveAfter = 2 * time.Second

// prove tries what was only remembered. A host none of whose drivers works any
// more ends, as it would have ended at its beginning; what else is new counts from
// the next life on.
func (h *host) prove(ctx context.Context) error {
	if !h.unproven || !rest(ctx, proveAfter) {
		return nil
	}
	apart := h.cfg
	apart.made = nil // those of the life are at work
	all, err := openDrivers(ctx, &apart)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was told to end
	}
	if err != nil {
		return err
	}
	return h.noteOffers(all)
}

// awaitOffer gives a driver by its name; empty is the default. One that may yet come is
// waited for: sandboxes of the life before are there sooner than their drivers.
func (h *host) awaitOffer(ctx context.Context, name string) (offer, bool) {
	for _, known := range []chan struct{}{h.opened, h.settled} {
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
