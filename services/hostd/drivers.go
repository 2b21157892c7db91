package hostd

import (
	"context"

	"github.com/millrace/millrace/services/hostd/internal/confine"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/instances"
)

// ShimSelf as Config.Shim selects this program itself.
const ShimSelf = instances.ShimSelf

// Auto stands in Config.Drivers for the drivers that suit this machine.
const Auto = drivers.Auto

// DriverReport describes a driver on this machine.
type DriverReport = drivers.Report

// Probe tries every driver on this machine.
func Probe(ctx context.Context) []DriverReport {
	cfg := Config{}
	return drivers.Probe(ctx, cfg.driverConfig())
}

// CheckConfinement returns why the kernel of this machine cannot confine processes further than
// their sandboxes do (process.Confinement), or nil.
func CheckConfinement() error { return confine.Check() }

// CheckDrivers returns an error if a driver does not exist.
func CheckDrivers(names []string) error { return drivers.Check(names) }

// LateDriver returns the driver that a host with these driver names offers only after its start,
// once its dependencies are built and it was probed; empty without such a driver. The error
// reports why it cannot be built on this machine.
func LateDriver(names []string) (driver string, err error) { return drivers.LateOf(names) }

// driverConfig returns the part of cfg that is about drivers.
func (c *Config) driverConfig() drivers.Config {
	return drivers.Config{
		Names: c.Drivers, Fixed: c.drivers, Version: c.Version, Scratch: c.scratch(), Log: c.Slog,
		MachineInit: instances.NewShim(c.Shim, shimRole, c.Slog).MachineInit,
		Kernel:      c.GuestKernel, TCG: c.TCG, JailPool: c.JailPool, JailTools: c.JailTools,
	}
}

// newDrivers returns the drivers of the host.
func (h *host) newDrivers() *drivers.Registry {
	cfg := h.cfg.driverConfig()
	cfg.Store, cfg.Stored = h.journal.SetOffered, h.journal.Offered
	cfg.BuildShim, cfg.Changed = h.shim.Build, func() { h.leases.Renew() }
	return drivers.New(cfg)
}
