package hostd

import (
	"context"
	"os"
	"slices"
	"time"
)

// openDrivers makes the drivers and finds out what they can do. While sandboxes of an
// earlier life wait, that is remembered instead, and proved when they have been
// attended to: a trial of every driver takes from some 10 ms to seconds.
func (h *host) openDrivers(ctx context.Context) error {
	if h.remember() {
		h.unproven = true
		return nil
	}
	if err := h.buildNamed(ctx); err != nil {
		return err
	}
	var err error
	if h.drivers, err = openDrivers(ctx, &h.cfg); err != nil {
		return err
	}
	return h.journal.setOffered(h.offered(h.drivers))
}

// offered is what is remembered of the drivers.
func (h *host) offered(all []offer) *offered {
	o := &offered{Boot: bootID(), Version: h.cfg.Version, UID: os.Geteuid(), Asked: h.cfg.Drivers}
	for _, d := range all {
		o.Drivers = append(o.Drivers, offeredDriver{d.Name(), d.caps})
	}
	return o
}

// remember takes over what an earlier life found out that was like this one and
// left sandboxes. It reports whether there was one.
func (h *host) remember() bool {
	if h.cfg.drivers != nil {
		return false
	}
	left, err := h.journal.sandboxes()
	if err != nil || len(left) == 0 {
		return false
	}
	was, err := h.journal.offered()
	now := h.offered(nil)
	if err != nil || now.Boot == "" || was.Boot != now.Boot || was.Version != now.Version || was.UID != now.UID ||
		!slices.Equal(was.Asked, now.Asked) || len(was.Drivers) == 0 {
		return false
	}
	var all []offer
	for _, o := range was.Drivers {
		d, err := makeDriver(o.Name, &h.cfg)
		if err != nil {
			return false
		}
		all = append(all, offer{d, o.Caps})
	}
	h.drivers = all
	return true
}

// proveAfter leaves the machine to those who wait for their output.
const proveAfter = 2 * time.Second

// prove tries what was only remembered. A host none of whose drivers works any
// more ends, as it would have ended at its beginning; what else is new counts from
// the next life on.
func (h *host) prove(ctx context.Context) error {
	if !h.unproven {
		return nil
	}
	if !rest(ctx, proveAfter) {
		return nil
	}
	all, err := openDrivers(ctx, &h.cfg)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was told to end
	}
	if err != nil {
		return err
	}
	return h.journal.setOffered(h.offered(all))
}
