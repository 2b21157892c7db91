package drivers

import (
	"context"
	"slices"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/helperbin"
)

// LateOf returns Late if a host with these driver names offers it after its start, else an empty
// name. The error reports why it cannot be built on this machine.
func LateOf(asked []string) (driver string, err error) {
	if !offersLate(asked) {
		return "", nil
	}
	return Late, helperbin.Runsc().Check()
}

func offersLate(asked []string) bool {
	return len(asked) == 0 || slices.Contains(asked, Auto) && !slices.Contains(asked, Late)
}

// offerLate offers the driver of Auto that startup does not wait for, once its dependencies are
// built and it was probed. From then on it is the default, unless another one was named before
// Auto.
func (r *Registry) offerLate(ctx context.Context) error {
	asked := r.cfg.Names
	if r.cfg.Fixed != nil || !offersLate(asked) {
		return nil
	}
	first := len(asked) == 0 || asked[0] == Auto
	o, err := r.openLate(ctx)
	if ctx.Err() != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.cfg.Changed()
	if err != nil { // the host continues without it, even if it was restored from the journal
		r.cfg.Log.Warn("driver unavailable, using the other drivers", "driver", Late, "err", err)
		r.offers = without(r.offers, Late)
		return nil
	}
	r.cfg.Log.Info("driver available", "driver", Late, "isolation", o.Caps.Isolation, "default", first)
	r.offers = with(r.offers, o, first)
	return r.store(with(r.verified, o, first))
}

// with returns all with o added or replaced, at the start or the end.
func with(all []Offer, o Offer, first bool) []Offer {
	all = without(all, o.Name())
	if first {
		return slices.Insert(all, 0, o)
	}
	return append(all, o)
}

func without(all []Offer, name string) []Offer {
	return slices.DeleteFunc(slices.Clone(all), func(o Offer) bool { return o.Name() == name })
}

// openLate builds the dependencies of the late driver and probes it.
func (r *Registry) openLate(ctx context.Context) (Offer, error) {
	if _, err := helperbin.Runsc().Build(ctx, r.cfg.Log.Warn); err != nil {
		return Offer{}, err
	}
	d, err := r.Driver(Late)
	if err != nil {
		return Offer{}, err
	}
	caps, err := d.Probe(ctx)
	return Offer{d, caps}, err
}

// machineName is the driver whose guests boot with the small shim, and with no other that is
// dynamically linked.
const machineName = "microvm"

// buildNamed builds the dependencies of explicitly named drivers before the host starts: their
// operator waits for them, and reads the progress.
func (r *Registry) buildNamed(ctx context.Context) error {
	if r.cfg.Fixed != nil {
		return nil
	}
	if slices.Contains(r.cfg.Names, machineName) {
		if err := r.cfg.BuildShim(ctx); err != nil {
			return err
		}
	}
	if !slices.Contains(r.cfg.Names, Late) {
		return nil
	}
	_, err := helperbin.Runsc().Build(ctx, r.cfg.Log.Warn)
	return kind.Wrap(kind.Unavailable, "build", Late, err)
}
