package hostd

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
	"github.com/millrace/millrace/services/hostd/internal/shim"
)

const shimRole = "shim"

// Inside plays the hidden roles that hostd starts its own program in, inside a
// sandbox; args are os.Args. It must be called before anything else in main: ok
// tells that it was one of them, and the program must exit with code.
func Inside(args []string, stderr io.Writer) (code int, ok bool) {
	if len(args) < 2 {
		return 0, false
	}
	switch args[1] {
	case shimRole:
		return shim.Main(args[2:], stderr), true
	case nsinit.Arg:
		nsinit.Init(args[2:]) //nolint:errcheck // the driver has the error already
		return 1, true
	}
	return 0, false
}

// DriverReport is what one driver can do on this machine.
type DriverReport struct {
	Name      string
	Err       error    // why it cannot work here; nil: it does
	Isolation string   // what stands between a sandbox and the host: "none", "process", "kernel" or "machine"
	Notes     []string // what is missing and why
}

// Probe tries every driver on this machine.
func Probe(ctx context.Context) []DriverReport {
	var out []DriverReport
	for _, name := range driverNames {
		d, err := makeDriver(name, slog.New(slog.DiscardHandler))
		r := DriverReport{Name: name, Err: err}
		if err == nil {
			var caps driver.Caps
			caps, r.Err = d.Probe(ctx)
			r.Isolation, r.Notes = caps.Isolation, caps.Notes
		}
		out = append(out, r)
	}
	return out
}

// openDrivers makes the drivers that were asked for; each must work here.
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
		names = []string{defaultDriver}
	}
	for _, name := range names {
		d, err := makeDriver(name, cfg.Slog)
		if err != nil {
			return nil, err
		}
		caps, err := d.Probe(ctx)
		if err != nil {
			return nil, fmt.Errorf("driver %s does not work here: %w", name, err)
		}
		out = append(out, offer{d, caps})
	}
	return out, nil
}
