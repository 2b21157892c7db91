package drivers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// Report describes a driver on this machine.
type Report struct {
	Name      string
	Err       error    // why it does not work here; nil: it works
	Isolation string   // isolation of a sandbox from the host: "none", "process", "kernel" or "machine"
	Can       []string // its abilities here besides creating sandboxes
	Cannot    []string // the abilities that it lacks here
	Notes     []string // what is missing and why
	Default   bool     // it is the default driver of a host that names no others
}

// Probe tries every driver on this machine.
func Probe(ctx context.Context, cfg Config) []Report {
	var out []Report
	best := len(autoOrder)
	for _, name := range names {
		d, err := build(name, &cfg)
		r := Report{Name: name, Err: err}
		if err == nil {
			var caps driver.Caps
			caps, r.Err = d.Probe(ctx)
			r.Isolation, r.Notes = caps.Isolation, caps.Notes
			r.Can, r.Cannot = caps.Abilities()
		}
		if at := slices.Index(autoOrder[:], name); r.Err == nil && at >= 0 {
			best = min(best, at)
		}
		out = append(out, r)
	}
	for i := range out {
		out[i].Default = best < len(autoOrder) && out[i].Name == autoOrder[best]
	}
	return out
}

// probe creates the configured drivers; each must work here.
func (r *Registry) probe(ctx context.Context) ([]Offer, error) {
	var out []Offer
	for _, d := range r.cfg.Fixed {
		caps, err := d.Probe(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, Offer{d, caps})
	}
	if out != nil {
		return out, nil
	}
	asked := r.cfg.Names
	if len(asked) == 0 {
		asked = []string{Auto}
	}
	for _, name := range asked {
		found, err := r.probeOne(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			if !slices.ContainsFunc(out, func(d Offer) bool { return d.Name() == o.Name() }) {
				out = append(out, o)
			}
		}
	}
	return out, nil
}

// probeOne creates the driver with a name, or the drivers that Auto stands for.
func (r *Registry) probeOne(ctx context.Context, name string) ([]Offer, error) {
	if name != Auto {
		d, err := r.build(name)
		if err != nil {
			return nil, err
		}
		caps, err := d.Probe(ctx)
		if err != nil {
			return nil, fmt.Errorf("driver %s does not work here: %w", name, err)
		}
		return []Offer{{d, caps}}, nil
	}
	var out []Offer
	var why []error
	for _, name := range autoOrder {
		if name == Late {
			continue // offerLate adds it
		}
		found, err := r.probeOne(ctx, name)
		if err != nil {
			why = append(why, err)
			continue
		}
		out = append(out, found...)
	}
	if len(out) == 0 {
		return nil, errors.Join(why...)
	}
	return out, nil
}
