package hostd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/millrace/millrace/events/natsd"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
	"github.com/millrace/millrace/services/hostd/internal/schedtick"
	"github.com/millrace/millrace/services/hostd/internal/shim"
	"github.com/millrace/millrace/services/hostd/internal/sudo"
)

const shimRole = "shim"

// RunHiddenRole runs the hidden roles of hostd's own program, inside a sandbox and beside hostd; args
// are os.Args. It must be called before anything else in main: ok reports that the program was
// started in such a role and must exit with code.
func RunHiddenRole(args []string, stdout, stderr io.Writer) (code int, ok bool) {
	if sudo.Called(args) {
		return sudo.Main(args[1:], stdout, stderr), true
	}
	if len(args) < 2 {
		return 0, false
	}
	switch args[1] {
	case shimRole:
		natsd.StopUsageSampling()
		return shim.Main(args[2:], stderr), true
	case schedtick.Arg:
		natsd.StopUsageSampling()
		return schedtick.Main(), true
	case vminit.Arg:
		vminit.Init(args[2:]) //nolint:errcheck // the console has the error
		return 1, true
	case vminit.PackArg:
		return vminit.Pack(args[2:]), true
	case nsinit.Arg:
		nsinit.Init(args[2:]) //nolint:errcheck // the driver has the error
		return 1, true
	}
	return 0, false
}

// DriverReport describes a driver on this machine.
type DriverReport struct {
	Name      string
	Err       error    // why it does not work here; nil: it works
	Isolation string   // isolation of a sandbox from the host: "none", "process", "kernel" or "machine"
	Can       []string // its abilities here besides creating sandboxes
	Cannot    []string // the abilities that it lacks here
	Notes     []string // what is missing and why
	Default   bool     // it is the default driver of a host that names no others
}

// Probe tries every driver on this machine.
func Probe(ctx context.Context) []DriverReport {
	var out []DriverReport
	best := len(autoOrder)
	for _, name := range driverNames {
		d, err := makeDriver(name, &Config{})
		r := DriverReport{Name: name, Err: err}
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

// openDrivers creates the configured drivers; each must work here.
func openDrivers(ctx context.Context, cfg *Config) ([]offer, error) {
	var out []offer
	for _, d := range cfg.drivers {
		caps, err := d.Probe(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, offer{d, caps})
	}
	if out != nil {
		return out, nil
	}
	names := cfg.Drivers
	if len(names) == 0 {
		names = []string{Auto}
	}
	for _, name := range names {
		found, err := openDriver(ctx, cfg, name)
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			if !slices.ContainsFunc(out, func(d offer) bool { return d.Name() == o.Name() }) {
				out = append(out, o)
			}
		}
	}
	return out, nil
}

// openDriver creates the driver with a name, or the drivers that Auto stands for.
func openDriver(ctx context.Context, cfg *Config, name string) ([]offer, error) {
	if name != Auto {
		d, err := makeDriver(name, cfg)
		if err != nil {
			return nil, err
		}
		caps, err := d.Probe(ctx)
		if err != nil {
			return nil, fmt.Errorf("driver %s does not work here: %w", name, err)
		}
		return []offer{{d, caps}}, nil
	}
	var out []offer
	var why []error
	for _, name := range autoOrder {
		if name == lateName {
			continue // offerLate adds it
		}
		found, err := openDriver(ctx, cfg, name)
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
